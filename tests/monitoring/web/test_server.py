"""The server without a browser: who gets in, what is given out, and what of a bad request, file or folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import socket
import string
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from monitoring.notes import Notes, NotesError, write_notes
from monitoring.web import folders
from monitoring.web.app import Answers
from monitoring.web.command import check_folders, is_desktop, lines, listen
from monitoring.web.details import ControlRefused, RunDetails
from monitoring.web.folders import RunIndex
from monitoring.web.guard import kept_token
from monitoring.web.rows import RunRow, read_row
from monitoring.web.saved_views import SavedViews, ViewError

from ...ports import free_port
from ...waiting import wait_until
from .conftest import SPIKE, SPIKE_STEP, Server, opened

SERIES: dict[str, Any] = {
    "x": "step",
    "buckets": 100,
    "series": [{"run": "results/spiky", "metric": "train_loss", "key": 0}],
}


@pytest.fixture
def listed(server: Server) -> Server:
    """The server, once it has read its folder."""
    wait_until(lambda: server.json("/api/runs")["all_read"], "the folder")
    return server


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "kharness_dashboard_{port}=wrong"},
        {"cookie": "kharness_dashboard_{port}="},
        {"cookie": "other={token}"},
        {"authorization": "Bearer {token}"},
    ],
)
@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/api/runs", "/page/main.js", "/api/live"]
)
def test_without_the_token_nothing_is_given_out(server: Server, path: str, headers: dict[str, str]) -> None:
    given = {name: text.format(port=server.port, token=server.token) for name, text in headers.items()}
    status, answer, content = server.ask(path, headers=given, cookie=False)
    assert (status, content) == (401, b"Open the address that the terminal printed, with its token.\n")
    assert "set-cookie" not in answer


def test_the_token_is_taken_once_and_becomes_a_cookie_no_script_reads(server: Server) -> None:
    status, answer, _ = server.ask(f"/?token={server.token}", cookie=False)
    assert status == 200
    assert answer["set-cookie"].split("; ")[1:] == [
        "Path=/",
        "Max-Age=31536000",
        "HttpOnly",
        "SameSite=Strict",
    ]
    assert server.ask(f"/api/runs?token={server.token}", cookie=False)[0] == 401
    assert "set-cookie" not in server.ask("/")[1]


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", {"host": "evil.example"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example:80"}, 421),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"origin": "null"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ("POST", {"origin": "http://127.0.0.1:1"}, 403),
        ("GET", {"host": "localhost:9999"}, 200),  # as through ssh -L
    ],
)
def test_other_hosts_and_origins_are_refused(
    server: Server, method: str, headers: dict[str, str], expected: int
) -> None:
    path, body = ("/api/runs", None) if method == "GET" else ("/api/where", b'{"where": ""}')
    assert server.ask(path, method=method, body=body, headers=headers)[0] == expected


def test_browsers_are_told_to_run_nothing_but_ours(server: Server) -> None:
    _, answer, content = server.ask("/")
    policy = answer["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert (answer["x-content-type-options"], answer["x-frame-options"]) == ("nosniff", "DENY")
    assert b"http://" not in content
    assert b"https://" not in content
    assert b"<script>" not in content


def test_script_and_style_are_kept_by_browsers_under_names_of_their_content(server: Server) -> None:
    """One file of each, and what every view asks for first, which is asked for beside them."""
    page = server.ask("/")[2].decode()
    names = re.findall(r'(?:href|src)="(page/all-[0-9a-f]{16}\.(?:css|js))"', page)
    assert [name.rpartition(".")[2] for name in names] == ["css", "js"]
    for name in names:
        status, plain, content = server.ask(f"/{name}")
        packed = server.ask(f"/{name}", headers={"accept-encoding": "gzip"})
        assert (status, plain["cache-control"]) == (200, "private, max-age=31536000, immutable")
        assert (packed[1]["content-encoding"], gzip.decompress(packed[2])) == ("gzip", content)
        assert hashlib.sha256(content).hexdigest().startswith(name[9:25])
    assert server.ask("/")[1]["cache-control"] == "no-cache"
    assert 'rel="preload" href="api/runs?since=0&amp;epoch=0"' in page


def test_a_first_picture_is_of_the_whole_run_and_the_rest_is_read_after_it(
    listed: Server, folder: Path
) -> None:
    """A journal that nobody has opened is sampled first and marked as coarse; a spike may be missing."""
    copy = shutil.copytree(folder / "spiky", folder / "unopened")
    wait_until(
        lambda: "results/unopened" in str(listed.json("/api/runs")["rows"]),
        "the run",
    )
    asked = {**SERIES, "series": [{**SERIES["series"][0], "run": "results/unopened"}], "soon": True}
    found = listed.json("/api/series", asked)["runs"]["results/unopened"]
    [window] = found["windows"]
    assert (found["more"], window["coarse"], window["x"][-1]) == (True, True, 20_000)
    while listed.json("/api/series", asked)["runs"]["results/unopened"]["more"]:
        pass
    [window] = listed.json("/api/series", asked)["runs"]["results/unopened"]["windows"]
    assert ("coarse" in window, max(window["max"]), sum(window["count"])) == (False, SPIKE, 20_000)
    shutil.rmtree(copy)


@pytest.mark.parametrize(
    "path",
    [
        *("/page/../command.py", "/page/%2e%2e/command.py", "/page//etc/passwd", "/page/..%2fapp.py"),
        "/api/run?id=..%2F..%2Fetc",
        "/api/run?id=results/spiky/../failed",
        "/api/log?id=results/spiky&name=../failed/said.log",
        "/api/log?id=results/spiky&name=/etc/hostname.log",
        "/api/log?id=results/spiky&name=out.log",
        "/api/log?id=results/spiky&name=run.json",
        "/api/log?id=results/spiky&name=pipe.log",
        "/api/picture?id=results/spiky&name=../../secret.png",
        "/api/picture?id=results/spiky&name=folder/linked.png",
        "/api/picture?id=results/spiky&name=no.png",
        "/api/trace?id=results/spiky&name=../run.json",
        "/api/trace?id=results/spiky&name=linked.json",
        "/api/environment?id=../results",
    ],
)
def test_no_path_leads_out_of_a_run_directory(listed: Server, folder: Path, path: str) -> None:
    run = folder / "spiky"
    (folder.parent / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\nsecret")
    (run / "folder").mkdir(exist_ok=True)
    (run / "profiler").mkdir(exist_ok=True)
    (run / "no.png").write_text("no picture")
    for link, target in (
        (run / "out.log", "/etc/hostname"),
        (run / "folder/linked.png", folder.parent / "secret.png"),
        (run / "profiler/linked.json", folder.parent / "secret.png"),
    ):
        if not link.is_symlink():
            link.symlink_to(target)
    if not (run / "pipe.log").exists():
        os.mkfifo(run / "pipe.log")
    status, _, content = listed.ask(path)
    assert status == 404
    assert b"secret" not in content.replace(path.encode(), b"").replace(b"secret.png", b"")


def test_links_between_folders_are_not_followed(tmp_path: Path) -> None:
    with opened(tmp_path / "elsewhere/run", config={}) as run:
        run.log_step(1, train_loss=1.0)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/linked").symlink_to(tmp_path / "elsewhere/run")
    index = RunIndex([tmp_path / "results"])
    wait_until(lambda: index.is_complete, "the folder")
    assert index.rows == {}
    index.close()


def test_an_option_that_runs_spell_in_several_cases_is_one(tmp_path: Path) -> None:
    """An axis has its name in capitals, an option of a command as it was typed."""
    for name, config in (("a", {"lr": 0.1, "seed": 1}), ("b", {"LR": 0.2, "SEED": 1})):
        with opened(tmp_path / "results" / name, config=config) as run:
            run.log_step(1, train_loss=1.0)
    index = RunIndex([tmp_path / "results"])
    wait_until(lambda: index.is_complete, "the folder")
    (varying,) = index.varying
    rates = {name: row.options[varying] for name, row in index.rows.items()}
    assert (varying.lower(), rates) == ("lr", {"results/a": 0.1, "results/b": 0.2})
    index.close()


def test_a_window_holds_the_spike(listed: Server) -> None:
    # a long journal is sampled at first
    wait_until(lambda: not listed.json("/api/series", SERIES)["runs"]["results/spiky"]["more"], "all of it")
    found = listed.json("/api/series", SERIES)["runs"]["results/spiky"]["windows"][0]
    assert (max(found["max"]), sum(found["count"])) == (SPIKE, 20_000)
    near = listed.json("/api/series", {**SERIES, "lo": SPIKE_STEP - 3, "hi": SPIKE_STEP + 3})
    window = near["runs"]["results/spiky"]["windows"][0]
    assert window["exact"]
    assert window["last"][window["x"].index(SPIKE_STEP)] == SPIKE
    samples = listed.json("/api/series", {**SERIES, "x": "samples"})["runs"]["results/spiky"]["windows"][0]
    assert samples["x"][-1] == 20_000 * 32


def test_a_request_to_a_run_that_has_ended_is_refused_with_the_reason(listed: Server) -> None:
    body = json.dumps({"id": "results/spiky", "changes": {"stop": True}}).encode()
    status, _, content = listed.ask("/api/control", method="POST", body=body)
    assert (status, json.loads(content)["error"]) == (400, "spiky: the run does not train now: complete")


def test_fuzzed_requests_get_an_answer_and_harm_nobody(listed: Server) -> None:
    """Most of 300 requests are refused, none is a bug (500), and the page works after them."""
    random_ = random.Random(20261124)
    letters = string.ascii_letters + string.digits + "%/.?&=[]{}\"'\\<>:;,+-_~ "
    paths = [
        "/api/runs",
        "/api/run",
        "/api/series",
        "/api/where",
        "/api/log",
        "/api/picture",
        "/api/control",
        "/page/x",
    ]
    statuses = set()
    for _ in range(300):
        noise = "".join(random_.choices(letters, k=random_.randrange(60)))
        if random_.random() < 0.5:
            query = "".join(f"%{ord(letter):02x}" for letter in noise)
            names = "&".join(f"{name}={query}" for name in ("id", "name", "since", "before", "q"))
            statuses.add(listed.ask(f"{random_.choice(paths)}?{names}")[0])
        else:
            known = {
                "id": "results/spiky",
                "series": [noise, None, {"run": 1}],
                "x": noise,
                "changes": {noise: 1},
                "where": noise,
            }
            body = noise.encode() if random_.random() < 0.3 else json.dumps(known).encode()
            statuses.add(listed.ask(random_.choice(paths), method="POST", body=body)[0])
    assert statuses <= {200, 400, 404, 405}
    assert listed.json("/api/runs")["all_read"]


def test_slow_clients_stand_in_nobodys_way(listed: Server) -> None:
    with ExitStack() as open_ones:
        for _ in range(100):
            slow = open_ones.enter_context(socket.create_connection(("127.0.0.1", listed.port)))
            slow.sendall(b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        live = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", listed.port))) for _ in range(50)
        ]
        cookie = f"Cookie: kharness_dashboard_{listed.port}={listed.token}\r\n"
        for page in live:
            page.sendall(f"GET /api/live HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n".encode())
        assert b"200 OK" in live[-1].recv(4096)
        assert listed.json("/api/runs")["all_read"]


def test_a_damaged_run_is_a_sentence_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path / "results/good", config={"SEED": 1}) as run:
        run.log_step(1, train_loss=1.0)
    bad = tmp_path / "results/bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"run_id": 3')
    (bad / "metrics.jsonl").write_bytes(b"\x00\xff{]\n" * 50)
    index = RunIndex([tmp_path / "results", tmp_path / "missing"])
    wait_until(lambda: index.is_complete, "both folders")
    assert set(index.rows) == {"results/good", "results/bad"}
    assert "cannot be read" in str(index.rows["results/bad"].facts["problem"])
    assert index.problems() == [f"{tmp_path / 'missing'} does not exist"]
    index.close()


def test_a_run_that_is_deleted_while_it_is_asked_for_is_a_sentence(tmp_path: Path) -> None:
    server = Server([tmp_path / "results"], tmp_path / "state")
    with opened(tmp_path / "results/gone", config={}) as run:
        run.log_step(1, train_loss=1.0)
    server.start()
    try:
        wait_until(lambda: server.json("/api/runs")["rows"], "the run")
        shutil.rmtree(tmp_path / "results/gone")
        status, _, answer = server.ask("/api/run?id=results/gone")
        assert status in {400, 404}  # it may be known by now
        assert json.loads(answer)["error"] in {
            "gone: No such file or directory",
            "there is no such run any more",
        }
    finally:
        server.kill()


def test_a_page_of_another_server_is_sent_all_rows(tmp_path: Path) -> None:
    """Their versions may be the same while the rows are not, as after a restart."""
    with opened(tmp_path / "run", config={}) as run:
        run.log_step(1, train_loss=1.0)
    before, after = (RunIndex([tmp_path / "run"]) for _ in range(2))
    wait_until(lambda: before.is_complete and after.is_complete, "the run")
    old, new = (Answers(index).changes(before.version, before.epoch) for index in (before, after))
    assert (old["version"], old["whole"], len(old["rows"])) == (new["version"], False, 0)
    assert (new["whole"], len(new["rows"])) == (True, 1)
    before.close()
    after.close()


def test_two_folders_of_one_name_and_a_run_by_itself(tmp_path: Path) -> None:
    for name in ("a/results/x", "b/results/x", "alone"):
        with opened(tmp_path / name, config={}) as run:
            run.log_step(1, train_loss=1.0)
    index = RunIndex([tmp_path / "a/results", tmp_path / "b/results", tmp_path / "alone"])
    wait_until(lambda: index.is_complete, "the folders")
    assert set(index.rows) == {"results/x", "results-2/x", "alone"}
    index.close()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", free_port()))
        one.listen()
        yield int(one.getsockname()[1])


def test_the_next_free_port_is_taken_and_said(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.web.command.PORT", taken)
    with listen("127.0.0.1", None) as listening:
        port = listening.getsockname()[1]
    assert taken < port
    said = lines("127.0.0.1", port, "T", {}, wanted=taken)
    assert said[:2] == [
        f"port {taken} is taken; the next free one is {port}",
        f"dashboard: http://127.0.0.1:{port}/?token=T",
    ]


def test_over_ssh_the_line_to_type_is_printed_and_no_browser_opened() -> None:
    over_ssh = {"SSH_CONNECTION": "10.0.0.9 51000 10.0.0.5 22", "USER": "ada", "DISPLAY": ":1"}
    said = lines("127.0.0.1", 8501, "T", over_ssh, wanted=8501)
    assert said[1] == "from your own machine: ssh -L 8501:127.0.0.1:8501 ada@10.0.0.5"
    assert not is_desktop(over_ssh)


def test_the_token_is_kept_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token, path = kept_token(), tmp_path / "kharness/dashboard_token"
    assert kept_token() == token
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # others may have read it
    assert kept_token() != token


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="is not a folder"):
        check_folders([tmp_path / "file"])


def test_a_run_that_hangs_is_told_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on a network file system that hangs does not delay the others, and is shown once it answers."""
    for name in ("first", "hangs", "last"):
        with opened(tmp_path / "results" / name, config={}) as run:
            run.log_step(1, train_loss=1.0)
    answers = threading.Event()

    def hanging(run_id: str, directory: Path) -> RunRow:
        if directory.name == "hangs":
            answers.wait()
        return read_row(run_id, directory)

    monkeypatch.setattr(folders, "read_row", hanging)
    monkeypatch.setattr(folders, "HANGS_AFTER", 0.2)
    index = RunIndex([tmp_path / "results"])
    try:
        index.asked()
        wait_until(lambda: len(index.rows) == 2, "the others")
        assert index.problems() == [f"{tmp_path / 'results/hangs'} does not answer"]
        answers.set()
        wait_until(lambda: len(index.rows) == 3 and not index.problems(), "the run that answers again")
    finally:
        answers.set()
        index.close()


def test_a_folder_that_hangs_keeps_its_runs_until_it_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mounted/first", "own/second"):
        with opened(tmp_path / "results" / name, config={}) as run:
            run.log_step(1, train_loss=1.0)
    answers, mounted, looked = threading.Event(), tmp_path / "results/mounted", folders._run_modified
    answers.set()

    def hanging(path: Path) -> float | None:
        if path == mounted:
            answers.wait()
        return looked(path)

    monkeypatch.setattr(folders, "_run_modified", hanging)
    monkeypatch.setattr(folders, "HANGS_AFTER", 0.2)
    index = RunIndex([tmp_path / "results"])
    try:
        wait_until(lambda: len(index.rows) == 2, "both")
        answers.clear()
        wait_until(lambda: index.problems() == [f"{mounted} does not answer"], "the sentence")
        assert [index.hangs(row.directory) for row in index.rows.values()] == [
            "mounted" in run_id for run_id in index.rows
        ]
        version = index.version
        write_notes(tmp_path / "results/own/second", Notes(("seen",)))
        wait_until(lambda: index.version > version, "the other run goes on")
        assert len(index.rows) == 2
        answers.set()
        wait_until(lambda: not index.problems(), "that it answers again")
    finally:
        answers.set()
        index.close()


def test_a_read_only_page_sends_no_requests(tmp_path: Path) -> None:
    with opened(tmp_path / "run", config={}) as run:
        run.log_step(1, train_loss=1.0)
        row = read_row("run", run.directory)
        assert RunDetails(read_only=True).control_of(row)["why_not"] == "this page is read-only"
        with pytest.raises(ControlRefused, match="run: this page is read-only"):
            RunDetails(read_only=True).request(row, {"stop": True})
        assert RunDetails().control_of(row)["why_not"] == ""
        assert not (run.directory / "requests").exists()
        with pytest.raises(NotesError, match="this page is read-only"):
            RunDetails(read_only=True).annotate(row, ["x"], "")
        assert not (run.directory / "notes.json").exists()
        with pytest.raises(ViewError, match="this page is read-only"):
            SavedViews(tmp_path, read_only=True).save("x", "#")
        assert SavedViews(tmp_path, read_only=True).all() == {}


def test_the_best_value_is_that_of_all_evaluations(tmp_path: Path) -> None:
    with opened(tmp_path / "run", config={}) as run:
        for step, (loss, accuracy) in enumerate([(0.5, 0.8), (0.3, 0.95), (0.4, 0.9)], start=1):
            run.log_eval(step, split="val", val_loss=loss, val_accuracy=accuracy)
    row = read_row("run", tmp_path / "run")
    assert (row.best["val_loss"], row.best["val_accuracy"]) == (0.3, 0.95)
    assert (row.metrics["val_loss"], row.fields()["best.val_loss"]) == (0.4, 0.3)
