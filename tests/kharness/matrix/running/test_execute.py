"""The journal of a running training, and the end of its output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kharness.matrix.launchers import Guarded
from kharness.matrix.running.execute import ActiveRun
from kharness.runs.journal_tail import JournalTail, end_offset
from kharness.runs.launch import Job, Launch, Slot
from monitoring.journal.run_state import GLANCE, read_end

from ..conftest import tail

START = {"event": "start", "config": {"SEED": 1, "TRACKER_PROJECT": "p-12345"}}
STEP = {"event": "step", "global_step": 4, "train_loss": 0.5}
INTERRUPTED = {"event": "end", "status": "interrupted"}


class SlowLauncher:
    """Takes a while until it has launched something, as one does whose cells import torch beforehand."""

    name = "slow"

    def submit(self, launch: Launch, slot: Slot) -> Job:
        time.sleep(0.1)
        self.launched = time.monotonic()
        return Job(launcher=self.name, id="1", host="here", pid=None, started=time.time())


def test_the_end_of_the_output_is_fit_for_a_terminal(tmp_path: Path) -> None:
    launcher: Any = SlowLauncher()
    log = tmp_path / "output.log"
    log.write_bytes(b"of the attempt before\n")
    run = ActiveRun(Launch("a", tmp_path, tmp_path, "lenet5", {}), Guarded(launcher, print), Slot())
    with log.open("ab") as file:
        file.write(b"first\n" + b"10%\r50%\r100%\n" + b"\x1b[2Jred\xff\a\n" + b"x" * 400)
    assert run.output_tail() == ["first", "100%", "red\ufffd\ufffd", "x" * 300]
    assert run.output_tail(3) == ["100%", "red\ufffd\ufffd", "x" * 300]
    log.unlink()
    assert run.output_tail() == []


def test_the_tail_follows_a_journal_as_it_grows(tmp_path: Path) -> None:
    followed = tail(tmp_path, {**START, "num_steps": 10}, {**STEP, "global_step": 1})
    assert (followed.step, followed.num_steps, followed.seconds_left) == (1, 10, None)
    with (tmp_path / "metrics.jsonl").open("a") as journal:
        journal.write('{"event":"step","time":15.0,"attempt":1,"global_step":3,"train_loss":null}\n{"torn')
    followed.read()
    # Two steps in 4 s, and 7 to go.
    assert (followed.step, followed.train_loss, followed.seconds_left) == (3, None, 14.0)


def test_the_tail_of_a_second_attempt_forgets_the_first(tmp_path: Path) -> None:
    followed = tail(tmp_path, START, STEP, INTERRUPTED, {"event": "start", "attempt": 2})
    assert (followed.step, followed.end) == (None, {})


def test_the_pace_is_that_of_the_newest_steps(tmp_path: Path) -> None:
    slow = [{**STEP, "global_step": i, "time": 10.0 * i} for i in range(1, 100)]
    fast = [{**STEP, "global_step": 99 + i, "time": 990.0 + i} for i in range(1, 100)]
    followed = tail(tmp_path, {**START, "num_steps": 298}, *slow, *fast)
    assert (followed.step, followed.steps_per_second, followed.seconds_left) == (198, 1.0, 100.0)


def test_the_pace_is_measured_again_after_the_clock_was_set_back(tmp_path: Path) -> None:
    before = [{**STEP, "global_step": i, "time": 5000.0 + i} for i in range(1, 11)]
    after = [{**STEP, "global_step": 10 + i, "time": 1400.0 + 2 * i} for i in range(1, 11)]
    followed = tail(tmp_path, {**START, "num_steps": 30}, *before, *after)
    assert (followed.step, followed.steps_per_second, followed.seconds_left) == (20, 0.5, 20.0)


def test_a_resumed_attempt_begins_at_its_checkpoint(tmp_path: Path) -> None:
    followed = tail(tmp_path, START, STEP, {**START, "attempt": 2, "resumed_from": {"global_step": 3}})
    assert (followed.step, followed.steps_per_second) == (3, None)


def test_a_tail_from_an_offset_knows_nothing_of_what_was_before(tmp_path: Path) -> None:
    tail(tmp_path, START, STEP, INTERRUPTED)
    offset = end_offset(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as journal:
        journal.write('{"torn')
    assert end_offset(tmp_path) == offset
    followed = JournalTail(tmp_path, since=offset)
    followed.read()
    assert (followed.start, followed.step, followed.end) == ({}, None, {})
    assert end_offset(tmp_path / "nowhere") == 0


def test_a_glance_at_a_long_journal_reads_its_plan_and_its_end(tmp_path: Path) -> None:
    steps = [{**STEP, "global_step": i, "time": float(i)} for i in range(5000)]
    tail(tmp_path, {**START, "num_steps": 9999}, *steps)
    assert (tmp_path / "metrics.jsonl").stat().st_size > 4 * GLANCE
    seen = read_end(tmp_path / "metrics.jsonl")
    assert (seen.step, seen.num_steps, seen.steps_per_second, seen.seconds_left) == (4999, 9999, 1.0, 5000.0)


def test_the_time_of_a_run_begins_when_it_is_launched(tmp_path: Path) -> None:
    launcher: Any = SlowLauncher()
    run = ActiveRun(Launch("a", tmp_path, tmp_path, "lenet5", {}), Guarded(launcher, print), Slot())
    assert run.seconds <= time.monotonic() - launcher.launched
