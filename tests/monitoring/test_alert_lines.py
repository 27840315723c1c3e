"""Alerts that the training itself prints, from what its agent has written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import sys
from pathlib import Path

import pytest

from monitoring import Run
from monitoring.alert_lines import AlertLines
from monitoring.journal.alerts import Alerts

from ..waiting import wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unwritable(Terminal):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "the terminal is gone")


def test_lines_show_what_is_new_and_news_on_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        alerts.add("follower", "error", "of an earlier training")
        lines = AlertLines(tmp_path)
        lines.look()
        hint = {"look_at": "the samples", "stop": "kill 7"}
        alerts.add("loss_spike", "warning", "a \x1b[31mleap\r\nof 5", state="firing", **hint)
        alerts.add("gpu_back", "info", "it is back")
        alerts.add("loss_spike", "info", "no longer: a leap", state="resolved", **hint)
        lines.look()
        lines.look()
    assert capsys.readouterr().err.splitlines() == [
        "warning: loss_spike: a  [31mleap  of 5",
        "hint: look at the samples; to stop the training: kill 7",
        "resolved: loss_spike: no longer: a leap",
    ]


def test_many_at_once_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = AlertLines(tmp_path)  # before there is a file
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        for number in range(8):
            alerts.add("nonfinite", "error", f"field {number} " + 600 * "x")
    lines.look()
    shown = capsys.readouterr().err.splitlines()
    assert [line[:24] for line in shown[:-1]] == [f"error: nonfinite: field {n}"[:24] for n in range(5)]
    assert (shown[-1], max(map(len, shown)) <= 500) == ("warning: 3 more alerts, in alerts.jsonl", True)


def test_line_takes_the_place_of_a_progress_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, terminal = AlertLines(tmp_path), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        alerts.add("nonfinite", "error", "lr is not finite")
    terminal.write("epoch 1: 30%|###")
    lines.look()
    assert terminal.getvalue() == "epoch 1: 30%|###\r\x1b[Kerror: nonfinite: lr is not finite\n"


@pytest.mark.parametrize("is_closed", [True, False])
def test_stderr_that_takes_nothing_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    lines, terminal = AlertLines(tmp_path), Unwritable()
    if is_closed:
        terminal.close()
    monkeypatch.setattr(sys, "stderr", terminal)
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        alerts.add("nonfinite", "error", "lr is not finite")
        lines.look()
    assert lines._new() == []


@pytest.mark.parametrize(
    ("stderr", "config", "is_shown"),
    [(Terminal(), {}, True), (Terminal(), {"NOTIFY_TERMINAL": False}, False), (io.StringIO(), {}, False)],
    ids=["a terminal", "a terminal without alerts", "a file"],
)
def test_training_prints_what_its_own_agent_finds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stderr: io.StringIO,
    config: dict[str, bool],
    is_shown: bool,
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)
    with Run("results/run", name="r", project="p", config=config) as run:
        run.log_step(1, train_loss=float("nan"))
        alerts = run.directory / "alerts.jsonl"
        wait_until(lambda: alerts.exists() and b"nonfinite" in alerts.read_bytes(), "the agent's rule")
    place = f"run r, {socket.gethostname()}, {run.directory}"
    said = [
        "run r: recorded in results/run; "
        "to look at it: kharness status results/run, kharness dashboard results",
        f"error: nonfinite: train_loss is not a finite number: at step 1 ({place})",
        "hint: look at the samples of that step, the learning rate and the precision; "
        f"to stop the training: kill {os.getpid()}",
    ]
    assert stderr.getvalue().splitlines() == (said if is_shown else [])
