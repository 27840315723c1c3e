"""control.json: what is taken, what is refused and why, and that nothing in its place disturbs a training."""

from __future__ import annotations

import json
import os
import socket
import time
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
    send,
)
from monitoring.errors import RunDirectoryError

NOW = 1_800_000_000.0
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
    """Of a training that began before any request."""
    return ControlFile(tmp_path, clock=clock, wall_clock=lambda: NOW)


def put(directory: Path, content: object) -> None:
    """As a dashboard writes it: in place."""
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / "control.json").write_text(text)


def looked(control: ControlFile, clock: Clock, seconds: float = POLL_SECONDS) -> list[object]:
    """What comes of it so much later, each as its changes or its reason."""
    clock.now += seconds
    return [
        dict(one.changes) if isinstance(one, ControlRequest) else one.reason for one in control.requests()
    ]


def test_the_documented_file_works_as_it_stands(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    put(tmp_path, OF_DOCUMENT)
    clock.now += POLL_SECONDS
    assert control.requests() == [ControlRequest({"log_every": 100}, 1703123456.789)]
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
    found = parse_request({**given, "timestamp": 5, "source": "a dashboard"}, now=NOW)
    assert (list(found.changes.items()), found.requested) == (list(changes.items()), requested)
    assert (found.timestamp, found.source) == (5.0, "a dashboard")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1], "it is no JSON object"),
        ({"log_every": 100}, "timestamp is no number: seconds since 1970, UTC"),
        ({"log_every": 100, "timestamp": "now"}, "timestamp is no number: seconds since 1970, UTC"),
        ({"log_every": 100, "timestamp": True}, "timestamp is no number: seconds since 1970, UTC"),
        (
            {"log_every": 100, "timestamp": 1703123456789},
            "timestamp 1703123456789 is in the future: seconds since 1970, UTC",
        ),
        ({"log_every": 100, "timestamp": 7}, "stale: timestamp 7 is not after 7, answered before"),
        ({"log_every": "100", "timestamp": 9}, "log_every=100 is no number"),
        ({"log_every": True, "timestamp": 9}, "log_every=True is no number"),
        ({"log_every": 10.5, "timestamp": 9}, "log_every=10.5 is no integer"),
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
            "source is no text of up to 100 printable characters",
        ),
        ({"stop": True, "timestamp": 10**400}, "timestamp is no number: seconds since 1970, UTC"),
        ({"lr_factor": 10**400, "timestamp": 9}, f"lr_factor=1{'0' * 99} is no number"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_reason(content: object, reason: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_request(content, now=NOW, answered=7.0)
    assert str(error.value) == reason


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link(path: Path) -> None:
    target = path.with_name("elsewhere.json")
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


NO_PLAIN_FILE, NO_JSON = "it is no plain file", "it is no JSON, or half of it"


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
        (holding(b"null"), "it is no JSON object"),
    ],
)
def test_nothing_in_the_place_of_the_file_disturbs_a_training(
    tmp_path: Path, control: ControlFile, clock: Clock, make: Callable[[Path], object], reason: str
) -> None:
    """Each is refused once, and the next request is taken as if it had not been there."""
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


def test_settings_are_changed_once_in_thirty_seconds_and_the_last_request_counts(
    tmp_path: Path, control: ControlFile, clock: Clock
) -> None:
    assert DEBOUNCE_SECONDS == 30
    put(tmp_path, {"log_every": 10, "timestamp": 1})
    assert looked(control, clock) == [{"log_every": 10}]
    put(tmp_path, {"log_every": 20, "timestamp": 2})
    assert looked(control, clock) == []
    put(tmp_path, {"lr_factor": 0.5, "timestamp": 3})
    assert looked(control, clock) == ["replaced by another request within 30 s"]
    assert looked(control, clock, 23.9) == []
    assert looked(control, clock) == [{"lr_factor": 0.5}]


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


def test_a_file_from_before_the_training_is_refused_unless_it_was_answered(
    tmp_path: Path, clock: Clock
) -> None:
    put(tmp_path, {"stop": True, "timestamp": 5})
    of_next_attempt = ControlFile(tmp_path, answered=0.0, clock=clock, wall_clock=lambda: NOW)
    assert looked(of_next_attempt, clock) == ["stale: it was there before the training began"]
    put(tmp_path, {"stop": True, "timestamp": 6})
    assert looked(of_next_attempt, clock) == [{"stop": True}]
    after_its_answer = ControlFile(tmp_path, answered=6.0, clock=clock, wall_clock=lambda: NOW)
    assert looked(after_its_answer, clock) == []


def test_the_same_request_written_again_is_stale(tmp_path: Path, control: ControlFile, clock: Clock) -> None:
    put(tmp_path, {"checkpoint": True, "timestamp": 5})
    assert looked(control, clock) == [{"checkpoint": True}]
    (tmp_path / "control.json").unlink()
    put(tmp_path, {"checkpoint": True, "timestamp": 5})
    assert looked(control, clock) == ["stale: timestamp 5 is not after 5, answered before"]


def test_what_is_sent_is_what_arrives(tmp_path: Path, clock: Clock) -> None:
    control = ControlFile(tmp_path, clock=clock)
    sent = send(tmp_path, {"lr_factor": 0.25, "checkpoint": True}, source="make control")
    clock.now += POLL_SECONDS
    assert control.requests() == [sent]
    assert (dict(sent.changes), sent.source) == ({"lr_factor": 0.25, "checkpoint": True}, "make control")
    assert abs(sent.timestamp - time.time()) < 600
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]


def test_what_would_be_refused_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="lr_factor=0 is outside"):
        send(tmp_path, {"lr_factor": 0}, source="make control")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunDirectoryError, match=r"control\.json cannot be written"):
        send(tmp_path / "nowhere", {"stop": True}, source="make control")
    assert RefusedRequest("why") == RefusedRequest("why", None, "control.json")
