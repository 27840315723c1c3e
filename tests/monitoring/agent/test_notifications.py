"""Alerts that reach a command and, through the real apprise, a server on this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run, read_records
from monitoring.agent.follow import follow
from monitoring.agent.notifications import URLS, Notifications, NotifyOptions, addresses
from monitoring.journal.alerts import Alerts

from ...waiting import wait_until

# apprise's own, when it is imported
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a webhook, and what was posted there."""
    posted: list[dict[str, Any]] = []

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"json://user:pass-word@127.0.0.1:{found.server_port}/", posted
        found.shutdown()
        thread.join()


@contextlib.contextmanager
def sending(directory: Path, **options: Any) -> Iterator[Alerts]:
    with contextlib.closing(Alerts(directory)) as alerts:
        alerts.add("nonfinite", "error", "of an earlier agent")
        sender = Notifications(directory, "run 1", NotifyOptions(**options), alerts)
        yield alerts
        sender.close()


def own_alerts(directory: Path) -> list[object]:
    found = [alert for alert, _ in read_records(directory / "alerts.jsonl")]
    return [alert["message"] for alert in found if alert["rule"] == "notify"]


def test_first_alert_goes_at_once_and_the_others_together(
    tmp_path: Path, server: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = server
    monkeypatch.setenv(URLS, address)
    with sending(tmp_path, interval=3600.0) as alerts:
        alerts.add("loss_spike", "warning", "the loss leaps", state="firing")
        wait_until(lambda: len(posted) == 1, "the first message")
        for number in range(25):
            alerts.add("nonfinite", "error", f"field {number}", state="firing")
        alerts.add("follower", "info", "takes records again")
    assert [(it["title"], it["type"]) for it in posted] == [
        ("run 1: 1 alert", "warning"),
        ("run 1: 25 alerts", "failure"),
    ]
    assert posted[0]["message"] == "the loss leaps"
    assert posted[1]["message"].splitlines() == [
        *(f"field {number}" for number in range(20)),
        "and 5 more, in alerts.jsonl",
    ]
    assert own_alerts(tmp_path) == []


def test_end_of_an_alert_is_good_news(tmp_path: Path, server: tuple[str, list[dict[str, Any]]]) -> None:
    address, posted = server
    (tmp_path / "urls").write_text(f"# ours\n\n{address}\n")
    with sending(tmp_path, urls_file=str(tmp_path / "urls")) as alerts:
        alerts.add("loss_spike", "info", "no longer: the loss leaps", state="resolved")
    assert [(it["message"], it["type"]) for it in posted] == [("no longer: the loss leaps", "success")]


def test_command_gets_the_alerts_as_json_and_no_shell(tmp_path: Path) -> None:
    code = "import os, sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read() + b'\\n')"
    (tmp_path / "take.py").write_text(code.replace("\\\\", "\\"))
    out = tmp_path / "$(touch hacked); out"
    command = f"{sys.executable} {tmp_path}/take.py '{out}'"
    with sending(tmp_path, command=command, errors_only=True) as alerts:
        alerts.add("loss_spike", "warning", "not wanted", state="firing")
        alerts.add("nonfinite", "error", "`reboot`; $(reboot)", state="firing")
    [about] = [json.loads(line) for line in out.read_text().splitlines()]
    assert (about["run"], about["directory"]) == ("run 1", str(tmp_path))
    assert [alert["message"] for alert in about["alerts"]] == ["`reboot`; $(reboot)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"command": "/nowhere/command"},
            "alerts were not sent: No such file or directory: /nowhere/command",
        ),
        ({"command": "false secret-word"}, "alerts were not sent: NOTIFY_COMMAND exited with 1"),
        ({"command": "'"}, "alerts were not sent: No closing quotation"),
        ({"urls_file": "/nowhere/urls"}, "alerts were not sent: No such file or directory: /nowhere/urls"),
    ],
)
def test_what_cannot_be_sent_is_one_alert(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with sending(tmp_path, interval=0.0, **options) as alerts:
        alerts.add("nonfinite", "error", "one")
        wait_until(lambda: own_alerts(tmp_path), "an alert")
        alerts.add("nonfinite", "error", "two")
    assert own_alerts(tmp_path) == [message]


def test_address_that_nobody_serves_or_knows_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URLS, "json://user:pass-word@127.0.0.1:9/ nonsense://pass-word")
    with sending(tmp_path) as alerts:
        alerts.add("nonfinite", "error", "one")
    assert sorted(map(str, own_alerts(tmp_path))) == [
        "alerts were not sent: a server did not take them",
        f"apprise does not know one of the addresses in {URLS} or the file",
    ]
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"pass-word" not in written
    assert "pass-word" not in "".join(capfd.readouterr())


def test_agent_sends_what_a_rule_finds(
    run_dir: Path, server: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: the run has ended when its agent begins."""
    address, posted = server
    monkeypatch.setenv(URLS, address)
    monkeypatch.setattr("signal.signal", lambda *arguments: None)  # this process keeps its own
    with Run(run_dir, name="n", project="p", config={}, agent=False) as run:
        run.log_step(1, train_loss=1.0, grad_norm=99.0)
    assert follow(run_dir)
    [(title, message)] = [(it["title"], it["message"]) for it in posted]
    assert (title, message.splitlines()) == (
        "n: 1 alert",
        [
            "the gradient norm is above 10 and 5 times what is usual: 99 at step 1, limit 50 "
            f"(run n, {socket.gethostname()}, {run_dir})",
            "look at the samples of that step, the learning rate and the clipping of gradients; "
            f"to stop the training: kill {os.getpid()}",
        ],
    )
    assert "pass-word" not in (run_dir / "run.json").read_text()
    assert addresses("") == [address]
