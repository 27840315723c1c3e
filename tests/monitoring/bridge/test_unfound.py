"""Stores that a killed bridge had not found yet: the next one knows whose they are."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from monitoring.journal.records import read_records

from .conftest import Bridged

# It adds to the store what it was given for this attempt; then it kills the bridge, which has not looked.
UNFOUND = """
import contextlib, os, pathlib, signal, sqlite3, sys, time

journal, store, begun, *losses = sys.argv[1:]
bridge = os.getppid()
while pathlib.Path(journal).read_bytes().count(b'"event":"start"') < int(begun):
    time.sleep(0.01)
if losses[0] == "none":
    sys.exit(3)
if losses[-1] == "killed":
    os.kill(bridge, signal.SIGSTOP)
    while ") T " not in pathlib.Path(f"/proc/{bridge}/stat").read_text():
        time.sleep(0.01)
if store.endswith(".db"):
    pathlib.Path(store).parent.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(store)) as to, to:
        to.execute("CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY, timestamp, step, metrics)")
        rows = [(int(loss), f'{{"loss": {loss}}}') for loss in losses[:2]]
        to.executemany("INSERT INTO metrics (step, metrics) VALUES (?, ?)", rows)
else:
    with open(store, "a") as to:
        to.writelines(f'{{"step": {loss}, "loss": {loss}}}\\n' for loss in losses[:2])
if losses[-1] == "killed":
    os.kill(bridge, signal.SIGKILL)
    signal.pause()
"""


Attempts = list[list[object]]
KILLED = "killed"


@pytest.fixture(params=["shared/p.db", "rows.jsonl"])
def store(request: pytest.FixtureRequest, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store outside of the run directory."""
    monkeypatch.setenv("TRACKIO_DIR", str(run_dir.parent / "shared"))
    return run_dir.parent / str(request.param)


def attempted(bridged: Bridged, run_dir: Path, store: Path, attempt: list[object]) -> str:
    """Run an attempt; what is said."""
    number = recorded(run_dir).count("start") + 1
    program = [sys.executable, "-c", UNFOUND, run_dir / "metrics.jsonl", store, number, *attempt]
    ended = bridged(run_dir, *program, options=["--follow", store.name] if store.suffix != ".db" else [])
    assert ended.returncode == (-signal.SIGKILL if KILLED in attempt else 3 if attempt == ["none"] else 0)
    return ended.stderr


def recorded(run_dir: Path) -> list[object]:
    """The losses and the other events of a journal, in order."""
    journal = read_records(run_dir / "metrics.jsonl") if run_dir.exists() else []
    return [record.get("train_loss", record["event"]) for record, _ in journal]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([[1, 2, KILLED], [3, 4, KILLED], [5, 6]], ["start", 1, 2, "start", 3, 4, "start", 5, 6, "end"]),
        ([["none"], [3, 4, KILLED], [5, 6]], ["start", "end", "start", 3, 4, "start", 5, 6, "end"]),
    ],
    ids=["killed", "ended"],
)
def test_rows_of_a_store_that_a_killed_bridge_had_not_found_are_recorded_once(
    run_dir: Path, store: Path, attempts: Attempts, expected: list[object], bridged: Bridged
) -> None:
    """Whether or not the attempt before has ended."""
    for attempt in attempts:
        attempted(bridged, run_dir, store, attempt)
    assert recorded(run_dir) == expected


def test_rows_that_another_program_added_between_two_attempts_stay_its_own(
    run_dir: Path, store: Path, bridged: Bridged
) -> None:
    """Also where the second one was killed before any of its own were read."""
    attempted(bridged, run_dir, store, [1, 2])
    attempted(bridged, run_dir.with_name("other"), store, [8, 9])
    attempted(bridged, run_dir, store, [3, 4, KILLED])
    attempted(bridged, run_dir, store, [5, 6])
    assert recorded(run_dir) == ["start", 1, 2, "end", "start", 3, 4, "start", 5, 6, "end"]


def test_rows_that_may_be_of_another_run_are_named_once_and_the_next_ones_recorded(
    run_dir: Path, store: Path, bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss removes the marks of running bridges, so the rows in between could be another run's."""
    monkeypatch.setenv("TMPDIR", str(run_dir.parent))
    said = attempted(bridged, run_dir, store, [1, 2, KILLED])
    shutil.rmtree(run_dir.parent / f"monitoring-bridges-{os.getuid()}")
    said += attempted(bridged, run_dir, store, [3, 4, KILLED])
    said += attempted(bridged, run_dir, store, [5, 6])
    assert said.count(f"note: {store} is not read of the attempt before") == 1
    assert recorded(run_dir) == ["start", "start", 3, 4, "start", 5, 6, "end"]
