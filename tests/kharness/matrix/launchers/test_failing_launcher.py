"""A launcher that fails costs the run it is asked about: the matrix goes on and ends with its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kharness.matrix import launchers
from kharness.matrix.launchers import Guarded
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Exit, Job, Launch, Slot

JOB = Job("queue", "17", "here", None, 1000.0)


class Queue:
    """A launcher whose queue does not answer."""

    name = "queue"

    def __init__(self) -> None:
        self.answers = False
        self.killed: list[str] = []

    def submit(self, launch: Launch, slot: Slot) -> Job:
        raise KeyError("partition")

    def poll(self, job: Job) -> Exit | None:
        if not self.answers:
            raise ValueError("no answer")
        return Exit(0, None, 5.0)

    def cancel(self, job: Job, *, kill: bool) -> None:
        self.killed.append(job.id)
        raise ValueError("no answer")

    def alive(self, job: Job) -> bool:
        raise ValueError("no answer")

    def filenos(self) -> Sequence[int]:
        raise ValueError("no descriptor")

    def close(self) -> None:
        raise ConnectionError("no queue")


def test_each_method_fails_by_itself(tmp_path: Path) -> None:
    said: list[str] = []
    launcher = Guarded(queue := Queue(), said.append)
    with pytest.raises(MatrixError, match=r"^launcher queue cannot start cell: KeyError: 'partition'$"):
        launcher.submit(Launch("cell", tmp_path, tmp_path, "m", {}), Slot())
    with pytest.raises(MatrixError, match=r"^launcher queue does not know whether job 17 runs: ValueError"):
        launcher.alive(JOB)
    assert [launcher.poll(JOB), launcher.poll(JOB), launcher.filenos()] == [None, None, ()]
    launcher.cancel(JOB, kill=False)
    launcher.close()
    assert said == [
        "warning: launcher queue does not know how a job is: ValueError: no answer",
        "warning: launcher queue: ValueError: no descriptor",
        "warning: launcher queue: ValueError: no answer",
        "warning: launcher queue: ConnectionError: no queue",
    ]
    queue.answers = True
    assert launcher.poll(JOB) == Exit(0, None, 5.0)


def test_a_job_of_which_nothing_is_known_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Guarded(queue := Queue(), lambda _: None)
    assert launcher.poll(JOB) is None
    monkeypatch.setattr(launchers, "PATIENCE", 0.0)
    before = time.time()
    given_up = launcher.poll(JOB)
    assert given_up is not None
    reason = "launcher queue does not know how a job is: ValueError: no answer"
    assert given_up == Exit(None, None, given_up.ended, "error", reason)
    assert given_up.ended >= before
    assert queue.killed == ["17"]
