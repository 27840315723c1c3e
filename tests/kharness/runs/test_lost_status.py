"""A run whose status.json is lost has the status of its journal, read at the ends only."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kharness.matrix.overview import look
from kharness.matrix.selected_runs import find
from kharness.runs.standing import status_of_complete
from kharness.runs.status import Attempt, RunStatus, write_status
from monitoring.host.name import host_name
from monitoring.host.process import process_started
from monitoring.journal import run_state, tail
from monitoring.journal.lineage import Lineage
from monitoring.journal.run_state import read_end

# Of a journal of STEPS records, 200 bytes each.
STEPS = 40_000


def write_journal(directory: Path, records: list[dict[str, Any]]) -> Path:
    lines = [json.dumps({"time": float(seq), "seq": seq, **record}) for seq, record in enumerate(records, 1)]
    directory.mkdir(exist_ok=True)
    path = directory / "metrics.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def story(chance: random.Random) -> list[dict[str, Any]]:
    """The records of some attempts, as a trainer writes them that may be killed at any moment."""
    records: list[dict[str, Any]] = []
    for attempt in range(1, chance.randint(1, 4) + 1):
        whole: list[dict[str, Any]] = [{"event": "gap"}] * chance.randint(0, 2)
        start = {"event": "start", "resumed_from": None, "config": {"SEED": attempt}}
        if records:
            first = chance.randint(1, len(records) + 1)
            start["supersedes"] = {"first_seq": first, "last_seq": len(records)}
        whole += [start, *({"event": "step", "global_step": step} for step in range(chance.randint(0, 300)))]
        whole.append({"event": "end", "status": chance.choice(["complete", "complete", "interrupted"])})
        whole += [{"event": "gap"}] * chance.randint(0, 1)
        kept = chance.choice([len(whole), len(whole), chance.randint(0, len(whole)), 1])
        records += [{**record, "attempt": attempt} for record in whole[:kept]]
    return records


@pytest.mark.parametrize("seed", range(60))
def test_end_of_a_journal_says_what_the_whole_of_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module, name in ((run_state, "GLANCE"), (run_state, "LAST_BYTES"), (tail, "FEW_BYTES")):
        monkeypatch.setattr(module, name, 2000)  # a few records
    path = write_journal(tmp_path, story(random.Random(seed)))
    whole, found = Lineage.read(path), read_end(path)
    assert (found.start, found.end) == (whole.starts[-1] if whole.starts else {}, whole.end)
    assert (status_of_complete(tmp_path, {}) is not None) is whole.complete


def test_run_without_a_journal_has_no_status(tmp_path: Path) -> None:
    assert status_of_complete(tmp_path, {}) is None


def running(directory: Path) -> None:
    job = {"pid": os.getpid(), "host": host_name(), "process_started": process_started(os.getpid())}
    write_status(directory, RunStatus("running", [Attempt(0.0, job=job)]))


@pytest.mark.parametrize(
    ("ends", "mark", "status"),
    [
        (True, None, "complete"),
        (False, None, "silent"),
        (False, running, "running"),
    ],
    ids=["status lost", "status lost and not complete", "running"],
)
def test_status_of_a_long_run_reads_ends_only(
    tmp_path: Path, ends: bool, mark: Callable[[Path], None] | None, status: str
) -> None:
    config = {"SEED": 1, "MODEL": "m"}
    start = {"event": "start", "attempt": 1, "config": config, "num_steps": STEPS, "note": "x" * 100}
    step = {"event": "step", "attempt": 1, "note": "x" * 100}
    records = [start, *({**step, "global_step": number} for number in range(1, STEPS + 1))]
    end = {"event": "end", "attempt": 1, "status": "complete"}
    journal = write_journal(tmp_path, [*records, end] if ends else records)
    (tmp_path / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in config.items()))
    (tmp_path / "output.log").touch()
    if mark is not None:
        mark(tmp_path)

    before = psutil.Process().io_counters().read_chars
    [cell] = look(find(tmp_path, tmp_path)).cells
    read = psutil.Process().io_counters().read_chars - before

    assert cell.status.status == status
    assert cell.state is None or (cell.state.step, cell.state.num_steps) == (STEPS, STEPS)
    assert read < 400_000 < journal.stat().st_size / 15
