"""Requests: what is taken, what is refused and why, each once; nothing in their place disturbs a training."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from monitoring.control import (
    DEBOUNCE_SECONDS,
    POLL_SECONDS,
    ControlFile,
    ControlRequest,
    RefusedRequest,
    RequestError,
    parse_request,
    path_of,
    send,
    withdraw,
)
from monitoring.errors import RunDirectoryError

OF_DOCUMENT = {"log_every": 100, "timestamp": 1703123456.789}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def control(tmp_path: Path, clock: Clock) -> ControlFile:
    """Control file of a training that began before any request."""
    return ControlFile(tmp_path, clock=clock)


def put(directory: Path, content: object) -> None:
    """Write the request in place, as a dashboard does."""
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / "control.json").write_text(text)


def looked(control: ControlFile, clock: Clock, seconds: float = POLL_SECONDS) -> list[object]:
    """Advance the clock and answer every request: its changes, or the reason it was refused."""
    clock.now += seconds
    found = control.requests()
    for one in found:
        control.answered(one)
    return [dict(one.changes) if isinstance(one, ControlRequest) else one.reason for one in found]


def queued(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "requests").iterdir())


def test_the_documented_file_works_as_it_stands(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    put(tmp_path, OF_DOCUMENT)
    clock.now += POLL_SECONDS
    digest = hashlib.sha256(json.dumps(OF_DOCUMENT).encode()).hexdigest()[:16]
    [found] = control.requests()
    assert found == ControlRequest({"log_every": 100}, 1703123456.789, name=f"control.json:{digest}")
    assert looked(control, clock) == []


@pytest.mark.parametrize(
    ("given", "changes", "requested"),
    [
        ({"log_every": 1}, {"log_every": 5}, {"log_every": 1}),
        ({"log_every": 1e9}, {"log_every": 2000}, {"log_every": 1e9}),
        ({"log_every": 20.0}, {"log_every": 20}, {}),
        ({"lr_factor": 1}, {"lr_factor": 1.0}, {}),
        (
            {"stop": True, "checkpoint": True, "evaluate": True, "profile": 20, "lr_factor": 0.5},
            {"lr_factor": 0.5, "profile": 20, "evaluate": True, "checkpoint": True, "stop": True},
            {},
        ),
    ],
)
def test_a_request_is_taken_in_a_fixed_order_and_clamped(
    given: dict[str, object], changes: dict[str, object], requested: dict[str, object]
) -> None:
    found = parse_request({**given, "timestamp": 5, "source": "a dashboard"})
    assert (list(found.changes.items()), found.requested) == (list(changes.items()), requested)
    assert (found.timestamp, found.source) == (5.0, "a dashboard")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1], "it is not a JSON object"),
        ({"log_every": 100}, "timestamp is not a number: seconds since 1970, UTC"),
        ({"log_every": 100, "timestamp": "now"}, "timestamp is not a number: seconds since 1970, UTC"),
        ({"log_every": 100, "timestamp": True}, "timestamp is not a number: seconds since 1970, UTC"),
        ({"log_every": "100", "timestamp": 9}, "log_every=100 is not a number"),
        ({"log_every": True, "timestamp": 9}, "log_every=True is not a number"),
        ({"log_every": 10.5, "timestamp": 9}, "log_every=10.5 is not an integer"),
        ({"lr_factor": 0, "timestamp": 9}, "lr_factor=0 is outside 0.0001..100"),
        ({"lr_factor": -1, "timestamp": 9}, "lr_factor=-1 is outside 0.0001..100"),
        ({"profile": 1001, "timestamp": 9}, "profile=1001 is outside 1..1000"),
        ({"stop": 1, "timestamp": 9}, "stop=1 is not true"),
        ({"checkpoint": False, "timestamp": 9}, "checkpoint=False is not true"),
        ({"chekpoint": True, "timestamp": 9}, "chekpoint is unknown; did you mean checkpoint"),
        (
            {"x\n": True, "timestamp": 9},
            "x\\n is unknown; known: log_every, lr_factor, profile, evaluate, checkpoint, stop",
        ),
        (
            {"timestamp": 9},
            "it changes nothing; known: log_every, lr_factor, profile, evaluate, checkpoint, stop",
        ),
        (
            {"stop": True, "timestamp": 9, "source": "x" * 101},
            "source is not a text of up to 100 printable characters",
        ),
        ({"stop": True, "timestamp": 10**400}, "timestamp is not a number: seconds since 1970, UTC"),
        ({"lr_factor": 10**400, "timestamp": 9}, f"lr_factor=1{'0' * 99} is not a number"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_reason(content: object, reason: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_request(content)
    assert str(error.value) == reason


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text(json.dumps(OF_DOCUMENT))
    path.symlink_to(target)


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # the name of a socket may have a hundred characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def of_ten_gigabytes(path: Path) -> None:
    path.touch()
    os.truncate(path, 10**10)


def holding(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


NO_PLAIN_FILE, NO_JSON = "it is not a plain file", "it is not JSON, or half of it"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_fifo, NO_PLAIN_FILE),
        (a_folder, NO_PLAIN_FILE),
        (a_link, NO_PLAIN_FILE),
        (a_link_to_itself, NO_PLAIN_FILE),
        (a_socket, NO_PLAIN_FILE),
        (a_device, NO_PLAIN_FILE),
        (holding(b""), NO_JSON),
        (holding(b'{"log_every": 100, "timest'), NO_JSON),
        (holding(b'{"lr_factor": NaN, "timestamp": 9}'), NO_JSON),
        (holding(b'{"lr_factor": 1e999, "timestamp": 9}'), NO_JSON),
        (holding(b"[" * 16000), NO_JSON),
        (holding(b'{"a":' * 2000 + b"1" + b"}" * 2000), NO_JSON),
        (holding(b"\xff\xfe\x00"), NO_JSON),
        (holding(b" " * 16385), "it has more than 16384 bytes"),
        (of_ten_gigabytes, "it has more than 16384 bytes"),
        (holding(b"null"), "it is not a JSON object"),
    ],
)
def test_nothing_in_the_place_of_a_file_disturbs_a_training(
    tmp_path: Path, control: ControlFile, clock: Clock, make: Callable[[Path], object], reason: str
) -> None:
    """Each is refused once, and the next request is taken as if it had not been there."""
    (tmp_path / "requests").mkdir()
    make(tmp_path / "requests" / "000001-x.json")
    assert [one for _ in range(4) for one in looked(control, clock)] == [reason]
    path = tmp_path / "control.json"
    make(path)
    said = [one for _ in range(4) for one in looked(control, clock)]
    assert said == [reason]
    (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
    put(tmp_path, OF_DOCUMENT)
    assert looked(control, clock) == [{"log_every": 100}]


def test_half_a_file_is_taken_when_the_rest_is_there(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    put(tmp_path, '{"log_every": 100,')
    assert looked(control, clock) == []
    put(tmp_path, OF_DOCUMENT)
    assert looked(control, clock) == [{"log_every": 100}]


def test_the_file_is_looked_at_every_few_seconds_only(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    assert 2 <= POLL_SECONDS <= 5
    assert looked(control, clock) == []
    put(tmp_path, OF_DOCUMENT)
    assert [looked(control, clock, 0.25 * POLL_SECONDS) for _ in range(4)] == [
        [],
        [],
        [],
        [{"log_every": 100}],
    ]


def test_a_setting_is_changed_once_in_thirty_seconds_and_its_last_request_counts(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    assert DEBOUNCE_SECONDS == 30
    for value in (10, 20):
        send(tmp_path, {"log_every": value}, source="a test")
    assert looked(control, clock) == ["replaced by a later request within 30 s", {"log_every": 20}]
    send(tmp_path, {"log_every": 30}, source="a test")
    assert looked(control, clock) == []
    assert len(queued(tmp_path)) == 1  # so that it outlives the training
    send(tmp_path, {"log_every": 40}, source="a test")
    send(tmp_path, {"lr_factor": 0.5}, source="a test")
    assert looked(control, clock) == ["replaced by a later request within 30 s", {"lr_factor": 0.5}]
    assert looked(control, clock, 23.9) == []
    assert looked(control, clock) == [{"log_every": 40}]
    assert queued(tmp_path) == []


def test_an_action_is_replaced_by_no_setting(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    requests: list[dict[str, object]] = [
        {"lr_factor": 0.5, "checkpoint": True},
        {"evaluate": True},
        {"lr_factor": 0.25},
        {"profile": 5},
    ]
    for request in requests:
        send(tmp_path, request, source="a test")
    assert looked(control, clock) == [requests[0], requests[1], requests[3]]
    assert looked(control, clock, DEBOUNCE_SECONDS) == [requests[2]]


def test_requests_sent_at_once_are_all_taken_in_their_order(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    senders = [
        threading.Thread(target=send, args=[tmp_path, {"profile": number}], kwargs={"source": "a test"})
        for number in range(1, 31)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    send(tmp_path, {"stop": True}, source="a test")
    *profiles, stop = looked(control, clock)
    numbers = [found["profile"] for found in profiles if isinstance(found, dict)]
    assert (sorted(numbers), stop) == (list(range(1, 31)), {"stop": True})
    assert (looked(control, clock), queued(tmp_path)) == ([], [])


@pytest.mark.parametrize("ahead", [-1e9, 3600.0, 1e12])
def test_nothing_depends_on_the_clock_of_a_sender(
    tmp_path: Path, control: ControlFile, clock: Clock, ahead: float
) -> None:
    put(tmp_path, {"checkpoint": True, "timestamp": 1.8e9 + ahead})
    assert looked(control, clock) == [{"checkpoint": True}]
    put(tmp_path, {"stop": True, "timestamp": 1.8e9})
    assert looked(control, clock) == [{"stop": True}]
    (tmp_path / "requests").mkdir()
    for number, late in enumerate((ahead, 0)):
        text = json.dumps({"evaluate": True, "timestamp": 1.8e9 + late})
        (tmp_path / "requests" / f"{number}.json").write_text(text)
    assert looked(control, clock) == [{"evaluate": True}] * 2


def test_what_is_to_be_done_now_does_not_wait(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    requests: list[dict[str, object]] = [
        {"log_every": 10},
        {"checkpoint": True},
        {"evaluate": True},
        {"log_every": 20, "stop": True},
    ]
    for number, request in enumerate(requests, 1):
        put(tmp_path, {**request, "timestamp": number})
        assert looked(control, clock) == [request]


def answer(directory: Path, control: str, request: str | None) -> None:
    """Write the answer of a training that is killed right after it."""
    record = {"event": "control_change", "seq": 1, "time": 1, "attempt": 1, "control": control}
    with (directory / "metrics.jsonl").open("a") as journal:
        journal.write(json.dumps({**record, "request": request}) + "\n")


def test_a_request_that_a_killed_training_has_not_answered_is_applied_by_the_next(
    tmp_path: Path, clock: Clock
) -> None:
    killed = ControlFile(tmp_path, clock=clock)
    sent = send(tmp_path, {"checkpoint": True}, source="a test")
    put(tmp_path, {"evaluate": True, "timestamp": 5})
    clock.now += POLL_SECONDS
    assert [one.name.partition(":")[0] for one in killed.requests()] == [sent.file, "control.json"]
    for _ in range(2):
        assert looked(ControlFile(tmp_path, clock=clock), clock) == [{"checkpoint": True}, {"evaluate": True}]
        send(tmp_path, {"checkpoint": True}, source="a test")  # the one before has been answered
    assert len(queued(tmp_path)) == 1


def test_a_request_that_a_killed_training_has_answered_is_not_applied_again(
    tmp_path: Path, clock: Clock
) -> None:
    whole = send(tmp_path, {"checkpoint": True}, source="a test")
    part = send(tmp_path, {"lr_factor": 0.5, "stop": True}, source="a test")
    put(tmp_path, {"evaluate": True, "timestamp": 5})
    [json_name] = [one.name for one in ControlFile(tmp_path, clock=lambda: 1e9).requests()[2:]]
    for control, request in (("checkpoint", whole.name), ("lr_factor", part.name), ("evaluate", json_name)):
        answer(tmp_path, control, request)
    assert looked(ControlFile(tmp_path, clock=clock), clock) == [{"stop": True}]
    assert queued(tmp_path) == []


def test_a_request_that_is_withdrawn_is_not_applied(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    first = send(tmp_path, {"log_every": 10}, source="a test")
    assert looked(control, clock) == [{"log_every": 10}]
    waits = send(tmp_path, {"log_every": 20}, source="a test")
    assert looked(control, clock) == []
    assert [withdraw(tmp_path, one) for one in (first, waits)] == [False, True]
    assert looked(control, clock, DEBOUNCE_SECONDS) == []


def test_what_is_left_at_the_end_is_refused(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    send(tmp_path, {"log_every": 10}, source="a test")
    assert looked(control, clock) == [{"log_every": 10}]
    waits = send(tmp_path, {"log_every": 20}, source="a test")
    assert looked(control, clock) == []
    late = send(tmp_path, {"stop": True}, source="a test")
    rest = control.rest("the training has ended: complete")
    assert [(one.name, one.reason) for one in rest] == [
        (one.name, "the training has ended: complete") for one in (waits, late)
    ]
    for one in rest:
        control.answered(one)
    assert (queued(tmp_path), control.rest("again")) == ([], [])


@pytest.mark.parametrize("place", ["requests", "requests/000001-x.json"])
def test_no_link_has_files_elsewhere_removed(
    tmp_path: Path, control: ControlFile, clock: Clock, place: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000001-x.json").write_text("{}")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(elsewhere if place == "requests" else elsewhere / "000001-x.json")
    said = [one for _ in range(3) for one in looked(control, clock)]
    assert said == ([] if place == "requests" else [NO_PLAIN_FILE])
    assert (elsewhere / "000001-x.json").read_text() == "{}"


def test_the_same_request_written_again_is_stale(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    put(tmp_path, {"checkpoint": True, "timestamp": 5})
    assert looked(control, clock) == [{"checkpoint": True}]
    (tmp_path / "control.json").unlink()
    put(tmp_path, {"checkpoint": True, "timestamp": 5})
    assert looked(control, clock) == ["stale: the same request, its timestamp included, was answered before"]
    put(tmp_path, {"checkpoint": True, "timestamp": 4})
    assert looked(control, clock) == [{"checkpoint": True}]


def test_what_is_sent_is_what_arrives(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    sent = send(tmp_path, {"lr_factor": 0.25, "checkpoint": True}, source="make control")
    assert queued(tmp_path) == [path_of(tmp_path, sent).name]
    clock.now += POLL_SECONDS
    assert control.requests() == [sent]
    assert (dict(sent.changes), sent.source) == ({"lr_factor": 0.25, "checkpoint": True}, "make control")
    assert [path.name for path in tmp_path.iterdir()] == ["requests"]


def test_what_would_be_refused_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="lr_factor=0 is outside"):
        send(tmp_path, {"lr_factor": 0}, source="make control")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunDirectoryError, match="requests cannot be written"):
        send(tmp_path / "nowhere", {"stop": True}, source="make control")
    assert RefusedRequest("why") == RefusedRequest("why", None, "control.json")
