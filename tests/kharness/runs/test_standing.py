"""How a run stands: every reader says the same word, whatever was killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kharness
from kharness.matrix.overview import look, status_lines
from kharness.matrix.selected_runs import find
from kharness.pages.addition import MatrixPages
from kharness.report.runs import load_run
from kharness.runs.standing import standing
from monitoring.host.name import host_name
from monitoring.host.process import process_started
from monitoring.journal.run_state import read_end, status_of
from monitoring.terminal.run_view import RunView
from monitoring.web.folders import RunIndex

from ...waiting import wait_until

STARTED = process_started(os.getpid())
NOW = time.time()
LONG_AGO = NOW - 3600.0
HERE: dict[str, Any] = {"host": host_name(), "pid": os.getpid()}
ALIVE, GONE, AWAY = (
    {**HERE, "process_started": STARTED},
    {**HERE, "process_started": -1.0},
    {"host": "elsewhere", "pid": 1, "process_started": 1.0},
)


def attempt(number: int, process: Mapping[str, Any], *, started: float = LONG_AGO) -> dict[str, Any]:
    """Attempt as run.json has it."""
    return {
        "attempt": number,
        "started": started,
        "host": process["host"],
        "pid": process["pid"],
        "pid_started": process["process_started"],
    }


@dataclass(frozen=True)
class Case:
    """A run directory's content, and the state of the run."""

    word: str
    reason: str = ""
    status: str = ""
    """In status.json; empty without it."""
    last: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its last attempt there."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """In run.json, which is not there without any."""
    records: Sequence[Mapping[str, Any]] = ()
    output: str = ""


START = {"event": "start", "attempt": 1, "time": LONG_AGO, "seq": 1}
STEP = {"event": "step", "attempt": 1, "time": LONG_AGO, "seq": 2, "global_step": 7}
BEGUN = (START, STEP)


def end(status: str, **fields: object) -> dict[str, Any]:
    return {"event": "end", "attempt": 1, "time": LONG_AGO, "seq": 3, "status": status, **fields}


FULL = "OSError: [Errno 28] No space left on device"
CASES = {
    "killed with its runner": Case(
        *("killed", "its runner died after step 7", "running", {"job": GONE}, [attempt(1, GONE)], BEGUN)
    ),
    "ended with its runner on a full disk": Case(
        "killed",
        f"its runner died after step 7; the output says: {FULL}",
        *("running", {"job": GONE}, [attempt(1, GONE)], BEGUN, f"step 7\n{FULL}\n"),
    ),
    "killed before it was launched": Case(
        "killed", "its runner died before a step was recorded", "running", {}, (), [START]
    ),
    "complete when its runner died": Case(
        *("complete", "", "running", {"job": GONE}, [attempt(1, GONE)], [*BEGUN, end("complete")])
    ),
    "runs": Case("running", "", "running", {"job": ALIVE}, [attempt(1, ALIVE)], BEGUN),
    "runs elsewhere": Case(
        *("running", "", "running", {"job": AWAY}, [attempt(1, AWAY)], [START, {**STEP, "time": NOW}])
    ),
    "silent elsewhere": Case("silent", "", "running", {"job": AWAY}, [attempt(1, AWAY)], BEGUN),
    "refused before it began": Case("failed", "exit code 2", "failed", {"reason": "exit code 2"}),
    "stopped for its time": Case(
        *("timeout", "over 9 s", "timeout", {"reason": "over 9 s"}, [attempt(1, GONE)]),
        [*BEGUN, end("interrupted")],
    ),
    "complete with other values": Case(
        *("failed", "ran with other values", "failed", {"reason": "ran with other values"}),
        *([attempt(1, GONE)], [*BEGUN, end("complete")]),
    ),
    "goes on by hand": Case(
        *("running", "", "killed", {"ended": LONG_AGO + 60}),
        *([attempt(1, GONE), attempt(2, ALIVE, started=LONG_AGO + 90)], BEGUN),
    ),
    "damaged": Case("unreadable", "status.json: ", "lovely", {}, [attempt(1, GONE)], BEGUN),
    "by itself, runs": Case("running", "", "", {}, [attempt(1, ALIVE)], BEGUN),
    "by itself, gone": Case(
        *("killed", "its process is gone after step 7", "", {}, [attempt(1, GONE)], BEGUN)
    ),
    "by itself, failed": Case(
        *(
            "failed",
            "ValueError: x",
            "",
            {},
            [attempt(1, ALIVE)],
            [*BEGUN, end("failed", error="ValueError: x")],
        )
    ),
    "by itself, silent elsewhere": Case("silent", "", "", {}, [attempt(1, AWAY)], BEGUN),
}


def written(run: Path, case: Case) -> Path:
    run.mkdir(parents=True)
    if case.status:
        last = {"started": LONG_AGO, **case.last}
        (run / "status.json").write_text(json.dumps({"status": case.status, "attempts": [last]}))
    if case.attempts:
        tracking: dict[str, object] = {"project": "p", "name": run.name, "group": None, "trackers": {}}
        about = {"run_id": "1", "created": LONG_AGO, "tracking": tracking, "config": {}}
        (run / "run.json").write_text(json.dumps({**about, "attempts": case.attempts}))
    since = time.time() - NOW  # the import of this module: others' tests may have come between
    records = [{**record, "time": record["time"] + since} for record in case.records]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (run / "output.log").write_text(case.output)
    return run


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_reader_says_the_same_word(tmp_path: Path, case: Case) -> None:
    run = written(tmp_path / "results" / "run", case)
    found = standing(run)
    reason = (found.last and found.last.reason) or ""
    assert (found.status, reason[: len(case.reason) or None]) == (case.word, case.reason)

    [listed] = kharness.runs(tmp_path / "results")
    assert listed.status == case.word
    overview = look(find(run, tmp_path, only_look=True))
    assert [cell.status for cell in overview.cells] == [found]
    counts = status_lines(overview, "run")[1]
    assert counts.split()[:4] == ["1", "run:", "1", case.word]
    reported = load_run(run)
    assert (reported.status, reported.reason) == (case.word, reason)
    index = RunIndex([tmp_path / "results"], [MatrixPages()])
    wait_until(lambda: index.is_complete)
    index.close()
    row = index.get("results/run")
    assert row is not None
    assert row.facts["status"] == case.word
    if not case.status:
        assert status_of(read_end(run / "metrics.jsonl"), case.attempts[-1], NOW) == case.word
        view = RunView(run)
        view.look()
        assert view.status == case.word


def test_row_is_read_again_once_somebody_else_says_how_it_ended(tmp_path: Path) -> None:
    run = written(tmp_path / "results" / "run", CASES["by itself, gone"])
    index = RunIndex([tmp_path / "results"], [MatrixPages()])
    wait_until(lambda: (row := index.get("results/run")) and row.facts["status"] == "killed")
    attempts = [{"started": LONG_AGO, "ended": NOW}]
    (run / "status.json").write_text(json.dumps({"status": "timeout", "attempts": attempts}))
    wait_until(lambda: (row := index.get("results/run")) and row.facts["status"] == "timeout")
    index.close()
    assert {run_id: row.facts["status"] for run_id, row in index.rows.items()} == {"results/run": "timeout"}
