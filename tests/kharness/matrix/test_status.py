"""`make status`, `make logs` and `make estimate` from outside, on runs that a pretender left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.matrix.running.durations import time_left
from kharness.runs.lock import RunnerLock
from monitoring import Run
from monitoring.host.process import process_started

from .conftest import Checkout, behavior, printed

Wait = Callable[[Callable[[], bool]], None]


@pytest.fixture(scope="module")
def finished(make_checkout: Callable[[], Checkout]) -> Checkout:
    """A matrix of which one cell is complete, one failed and one was complete at its second attempt."""
    checkout = make_checkout()
    axes = "CONFIG_MATRIX_AXES=BEHAVIOR=good|once-sigkill|non-finite|crash"
    assert checkout.run("test_matrix", axes)[0] == 3
    return checkout


def test_a_run_of_another_program_has_a_status_and_cannot_be_continued(
    finished: Checkout, tmp_path: Path
) -> None:
    with Run(tmp_path / "mine", agent=False) as run:
        run.log_step(1, train_loss=1.0)
        code, output = finished.run("status", f"RUN={tmp_path}/mine")
        assert (code, output.splitlines()[:2]) == (
            0,
            [f"run {tmp_path}/mine: running, started without make", "1 run: 1 running"],
        )
    code, output = finished.run("status", f"RUN={tmp_path}/mine")
    assert (code, output) == (0, f"run {tmp_path}/mine: complete\n1 run: 1 complete\n")
    with pytest.raises(ValueError, match="lr"), Run(tmp_path / "mine", agent=False):
        raise ValueError("lr is too high")
    code, output = finished.run("status", f"RUN={tmp_path}/mine")
    assert (code, output.splitlines()) == (
        0,
        [
            f"run {tmp_path}/mine: not running; its program, started again, goes on with it",
            "1 run: 1 failed (error)",
            "  mine: failed: ValueError: lr is too high",
        ],
    )
    code, output = finished.run("continue", f"RUN={tmp_path}/mine")
    error = f"error: {tmp_path}/mine was recorded by a program itself: nothing in it says how that is started"
    hint = "hint: start the program again, and it goes on; status, report, compare and sync take this run"
    assert (code, output.splitlines()) == (2, [error, hint])
    code, output = finished.run("logs", f"RUN={tmp_path}/mine")
    error = f"error: {tmp_path}/mine/output.log does not exist: the run prints where its program was started"
    assert (code, output.splitlines()) == (2, [error, "hint: make status reports more"])


def test_status_of_a_matrix_that_has_ended(finished: Checkout) -> None:
    code, output = finished.run("status")
    where = f"results/{finished.latest.name}"
    assert (code, output.splitlines()) == (
        0,
        [
            f"matrix {where}: not running; resume with: make continue RUN={where}",
            "4 runs: 2 complete, 1 failed (error), 1 failed (non_finite)",
            "  behavior-non-finite: failed: exit code 65: NonFiniteError: step 2: loss nan",
            "  behavior-crash: failed: exit code 1: RuntimeError: the loss is a banana",
            "  behavior-once-sigkill: complete, unstable, resumed at step 1 after a kill (attempt 2)",
            "  error: nonfinite: train_loss is not a finite number (1 of 4 runs: "
            "behavior-non-finite at step 2)",
        ],
    )


def test_a_reason_moves_no_cursor_and_begins_no_line(finished: Checkout, tmp_path: Path) -> None:
    copied = finished.copy(tmp_path / "copy")
    path = copied.latest / "behavior-crash" / "status.json"
    content = json.loads(path.read_text())
    content["attempts"][-1]["reason"] = "\x1b[2Jall\tis\n  well\x9b1m"
    path.write_text(json.dumps(content))
    assert "  behavior-crash: failed: all is well\ufffd1m" in copied.run("status")[1].splitlines()


def test_what_would_only_fail_again_is_not_taken_up(checkout: Checkout) -> None:
    assert checkout.run("test_matrix", "CONFIG_MATRIX_AXES=BEHAVIOR=good|non-finite")[0] == 3
    code, output = checkout.run("status")
    where = f"results/{checkout.latest.name}"
    assert (code, output.splitlines()) == (
        0,
        [
            f"matrix {where}: ended; retry the failed runs with: make test_rerun TARGET={where}",
            "2 runs: 1 complete, 1 failed (non_finite)",
            "  behavior-non-finite: failed: exit code 65: NonFiniteError: step 2: loss nan",
            "  error: nonfinite: train_loss is not a finite number (1 of 2 runs: "
            "behavior-non-finite at step 2)",
        ],
    )


def test_a_refusal_says_what_the_training_said(checkout: Checkout) -> None:
    assert checkout.run("test_matrix", "CONFIG_MATRIX_AXES=BEHAVIOR=refused")[0] == 3
    reason = "exit code 2: DATA_DIR=data holds no images"
    output = checkout.run("status")[1]
    assert output.splitlines()[1:] == [
        "1 run: 1 failed (refused)",
        f"  behavior-refused: failed: {reason}",
    ]
    summary = json.loads((checkout.latest / "summary.json").read_text())
    assert [run["reason"] for run in summary["runs"]] == [reason]


def test_a_run_that_lives_on_is_not_taken_up(checkout: Checkout) -> None:
    """Nobody holds the lock, and its process, here this one, is alive."""
    checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine")
    path = checkout.root / "results/mine/status.json"
    status = json.loads(path.read_text())
    (attempt,) = status["attempts"]
    job = {**attempt["job"], "pid": os.getpid(), "process_started": process_started(os.getpid())}
    attempt = {**attempt, "ended": None, "exit_code": None, "job": job}
    path.write_text(json.dumps({"status": "running", "attempts": [attempt]}))
    first = checkout.run("status")[1].splitlines()[0]
    assert first == "run results/mine: its runner is gone; 1 run still running"


def test_status_says_what_a_tracker_has_put_aside(finished: Checkout) -> None:
    followers = finished.latest / "behavior-good" / "followers.json"
    before = followers.read_bytes() if followers.exists() else None
    refused = {"offset": 1, "seq": 9, "refused": 2, "refusal": "record 8 (step): ValueError: x"}
    followers.write_text(json.dumps({"trackio": refused, "csv": {"offset": 1, "seq": 9}}))
    _, output = finished.run("status", "FILTER=BEHAVIOR=good")
    followers.unlink() if before is None else followers.write_bytes(before)
    assert output.splitlines()[2:] == [
        "  behavior-good: trackio refused 2 records, last record 8 (step): ValueError: x"
    ]


def test_status_of_some_cells(finished: Checkout) -> None:
    code, output = finished.run("status", "FILTER=BEHAVIOR=good")
    where = f"results/{finished.latest.name}"
    assert (code, output) == (0, f"matrix {where}: complete\n1 run: 1 complete\n")


def test_the_log_of_a_cell(finished: Checkout) -> None:
    code, output = finished.run("logs", "CELL=behavior-crash")
    assert code == 0
    assert output == (finished.latest / "behavior-crash" / "output.log").read_text()
    assert output.endswith("RuntimeError: the loss is a banana\n")
    assert finished.run("logs", f"RUN={finished.latest}/behavior-crash") == (code, output)


def test_a_cell_that_is_none_is_told_with_the_nearest(finished: Checkout) -> None:
    code, output = finished.run("logs", "CELL=behavior-crush")
    assert (code, output.splitlines()[0]) == (2, "error: CELL=behavior-crush matches none of 4 names")
    assert output.splitlines()[1].startswith("hint: perhaps behavior-crash, ")
    code, output = finished.run("logs", "CELL=../../lib")
    assert (code, output.splitlines()[0]) == (2, "error: CELL=../../lib matches none of 4 names")
    code, output = finished.run("logs")
    assert (code, output.splitlines()[0]) == (2, "error: CELL is not given")


def test_an_estimate_is_from_what_such_cells_took(finished: Checkout) -> None:
    code, output = finished.run("estimate", "JOBS=2")
    assert code == 0, output
    lines = output.splitlines()
    assert re.fullmatch(r"complete: 2 of 4 runs, \d+\.\d s each", lines[0])
    assert re.fullmatch(r"time left: about \d+\.\d s with 2 at once", lines[-1])
    code, output = finished.run("estimate", "FILTER=BEHAVIOR=good")
    assert output.splitlines()[-1] == "nothing is left"


def test_a_running_matrix_is_looked_at_from_outside(checkout: Checkout, wait_until: Wait) -> None:
    process = checkout.start(
        "test_matrix", "JOBS=2", behavior("slow"), "CONFIG_NUM_STEPS=100000", "CONFIG_MATRIX_AXES=SEED=1|2|3"
    )
    journals = [checkout.root / f"results/latest/seed-{seed}/metrics.jsonl" for seed in (1, 2)]
    wait_until(lambda: all(path.exists() and path.read_bytes().count(b"\n") > 60 for path in journals))
    output = checkout.run("status")[1].splitlines()
    where = f"results/{checkout.latest.name}"
    estimate = checkout.run("estimate")[1].splitlines()
    follow = checkout.start("logs", "CELL=seed-1", "FOLLOW=y")
    assert printed(follow).readline().startswith("training with sgd")
    assert follow.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert follow.communicate(timeout=600)[0].endswith("saving\n")
    assert re.fullmatch(rf"matrix {where}: run by pid {process.pid} on \S+ since \d\d:\d\d:\d\d", output[0])
    assert output[1] == "3 runs: 2 running, 1 pending"
    running = r"  seed-\d: step \d+/100000  loss \d\.\d{4}  [\d.]+ steps/s  ETA [\d:]+"
    assert [re.fullmatch(running, line) is not None for line in output[2:4]] == [True, True], output
    assert re.fullmatch(r"half done: 2, \d+% of their steps on average", estimate[1]), estimate
    assert re.fullmatch(r"time left: about [\d:]+ with 2 at once", estimate[2]), estimate


def test_a_runner_that_died_is_told(checkout: Checkout, wait_until: Wait) -> None:
    process = checkout.start("test_matrix", behavior("hang"), "CONFIG_MATRIX_AXES=SEED=1|2")
    run = checkout.root / "results/latest/seed-1"
    wait_until(lambda: '"process_started"' in (run / "status.json").read_text())
    wait_until(lambda: '"step"' in (run / "metrics.jsonl").read_text())
    process.kill()
    process.communicate()
    wait_until(lambda: "wrote no end record" in (run / "alerts.jsonl").read_text())  # its agent outlives it
    where = f"results/{checkout.latest.name}"
    assert checkout.run("status")[1].splitlines() == [
        f"matrix {where}: not running; resume with: make continue RUN={where}",
        "2 runs: 1 pending, 1 killed (runner_died)",
        "  seed-1: killed: its runner died after step 1",
        "  error: trainer: the training process is gone and wrote no end record (1 of 2 runs: seed-1)",
    ]


def test_status_of_a_single_run(checkout: Checkout) -> None:
    checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine")
    assert checkout.run("status") == (0, "run results/mine: complete\n1 run: 1 complete\n")


def test_a_run_that_begins_anew_has_done_nothing_yet(checkout: Checkout) -> None:
    """Its complete attempt before that is none of its own steps."""
    checkout.run("train", "CONFIG_TRACKER_RUN_NAME=mine")
    run = checkout.root / "results/mine"
    status = json.loads((run / "status.json").read_text())
    journal = (run / "metrics.jsonl").stat().st_size
    again = {**status["attempts"][0], "arguments": ["--from-scratch"], "journal_offset": journal}
    again |= {"ended": None, "exit_code": None}
    again["job"] |= {"pid": os.getpid(), "process_started": process_started(os.getpid())}
    attempts = [status["attempts"][0], again]
    (run / "status.json").write_text(json.dumps({"status": "running", "attempts": attempts}))
    with RunnerLock(run):
        assert checkout.run("status")[1].splitlines()[1:] == ["1 run: 1 running", "  mine: starting"]


def test_a_run_beside_the_cells_is_one_of_its_own(checkout: Checkout) -> None:
    """`make reproduce` leaves such a run among the cells."""
    checkout.run("test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2")
    shutil.copytree(checkout.latest / "seed-1", checkout.latest / "seed-1_reproduced")
    run = f"results/{checkout.latest.name}/seed-1_reproduced"
    assert checkout.run("status", f"RUN={run}") == (0, f"run {run}: complete\n1 run: 1 complete\n")
    assert checkout.run("continue", f"RUN={run}") == (0, f"{run} is complete\n")
    code, output = checkout.run("status", f"RUN={run}_2")
    assert (code, output.splitlines()[0]) == (2, f"error: {checkout.root}/{run}_2 does not exist")


def test_a_status_that_cannot_be_read_is_told(checkout: Checkout) -> None:
    checkout.run("train", behavior("crash"), "CONFIG_TRACKER_RUN_NAME=mine")
    path: Path = checkout.root / "results/mine/status.json"
    path.write_text(json.dumps({"status": "complete"}))
    assert "  mine: unreadable: status.json: " in checkout.run("status")[1]


@pytest.mark.parametrize(
    ("running", "waiting", "jobs", "typical", "left"),
    [
        ([], [], 1, None, 0.0),
        ([4.0], [], 1, None, 4.0),
        ([4.0, 1.0], [2.0], 2, None, 4.0),
        ([4.0, 1.0], [2.0, 2.0], 2, None, 5.0),
        ([], [3.0, 1.0, 1.0, 1.0], 2, None, 3.0),
        ([], [None, None], 1, 5.0, 10.0),
        ([None], [], 1, None, None),
        ([1.0], [None], 1, None, None),
        ([None, 2.0], [None], 2, 3.0, 5.0),
    ],
)
def test_the_time_that_is_left(
    running: list[float | None],
    waiting: list[float | None],
    jobs: int,
    typical: float | None,
    left: float | None,
) -> None:
    assert time_left(running, waiting, jobs=jobs, typical=typical) == left
