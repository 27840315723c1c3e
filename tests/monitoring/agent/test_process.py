"""Agents that cannot be started, or die before they say a word: the training tells of them and goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from monitoring import Run, read_records
from monitoring.agent.process import AgentProcess

from ...waiting import wait_until


def test_agent_that_cannot_be_started_is_told_once_and_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Run(tmp_path / "run") as run:
        run.log(loss=1.0)
    why = "its agent cannot be started: no such file or directory"
    then = "it is tried again, or run `make sync` later"
    assert capsys.readouterr().err == f"warning: {tmp_path / 'run'}: {why}; {then}\n"
    events = [record["event"] for record, _ in read_records(tmp_path / "run" / "metrics.jsonl")]
    assert events == ["start", "step", "end"]


def test_agents_that_die_one_after_another_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    agent = AgentProcess(tmp_path)

    def told() -> str:
        agent.keep_alive(at_once=True)
        return capsys.readouterr().err

    line = wait_until(told, "two deaths")
    assert line == (
        f"warning: {tmp_path}: its agent dies again and again: exit code 1; agent.log has its last words\n"
    )
    assert [told() for _ in range(3)] == [""] * 3
