"""`make status` and the report agree on which attempts at a run failed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kharness.matrix.overview import CellState, Overview, status_lines
from kharness.matrix.planning.filter import Filter
from kharness.matrix.selected_runs import Member, SelectedRuns
from kharness.report.runs import load_run
from kharness.runs.launch import Launch
from kharness.runs.status import COMPLETE, Attempt, RunStatus, failed_before, status_text

# Exit code and signal beside the cause: a training that times out ends with 75 as one that is stopped does.
ATTEMPTS = [
    Attempt(1.0, ended=2.0, exit_code=75, cause="stopped"),
    Attempt(3.0, ended=4.0, exit_code=75, cause="timeout"),
    Attempt(5.0, ended=6.0, signal=9, cause="signal"),
    Attempt(7.0, ended=8.0, cause="runner_died"),
    Attempt(9.0, ended=10.0, exit_code=0, cause="other_values"),
    Attempt(11.0, ended=12.0, signal=9, cause="stopped_early"),
    Attempt(13.0, ended=14.0, exit_code=71, cause="out_of_memory"),
    Attempt(15.0, ended=16.0, exit_code=0),
]


def test_attempts_that_failed_are_those_with_a_cause_of_their_own() -> None:
    found = [attempt.cause for attempt in failed_before(ATTEMPTS)]
    assert found == ["timeout", "signal", "other_values", "out_of_memory"]
    assert failed_before([replace(ATTEMPTS[2], started=0.0)]) == []  # the last is not before the last
    jobs = [replace(ATTEMPTS[1], slot={"job": "7_0"}), Attempt(1.0, cause="node_failed"), ATTEMPTS[-1]]
    assert failed_before(jobs) == []  # a time limit of the cluster, and a node of it


def test_make_status_and_the_report_call_the_same_run_unstable(tmp_path: Path) -> None:
    status = RunStatus(COMPLETE, ATTEMPTS)
    member = Member("cell", {}, Launch("cell", tmp_path, tmp_path, "m", {}))
    found = SelectedRuns(tmp_path, [member], Filter(), False, "run", {}, {})
    lines = status_lines(Overview(found, [CellState(member, status, None)], None), "cell")
    assert lines[-1] == (
        "  cell: complete, unstable, after a stop, a time limit, a kill, a kill with its runner, "
        "a run with other values, an early stop, want of memory (attempt 8)"
    )
    (tmp_path / "status.json").write_text(status_text(status))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"event": "start", "seq": 1, "time": 1.0}) + "\n")
    run = load_run(tmp_path)
    assert (run.unstable, run.failed_attempts) == (True, failed_before(ATTEMPTS))
