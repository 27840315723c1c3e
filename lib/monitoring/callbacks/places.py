"""Chooses the run directory of a training: a new one, or that of the run that it resumes.

The first run is in the directory that the user named, the next in `first-2`, `first-3` and so on. Rank 0
chooses; the other ranks find its choice by the number of the opening, which all ranks count alike.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from monitoring.errors import RunDirectoryError
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import JOURNAL, RUN_JSON
from monitoring.journal.lineage import counting
from monitoring.journal.ranks import LOOK_EVERY, WAIT_FOR_RANK_0, run_of_this_launch
from monitoring.journal.records import MEASURING, Record, read_records, seq_of

# Key in run.json's attempts: how many runs its launch had opened below the same name, with this one.
OPENING = "opening"

# Directory that the user named -> how many runs this process has opened below that name.
_opened: Counter[Path] = Counter()


@dataclass(frozen=True)
class RunPlace:
    """The directory of a run, and what an attempt that begins there supersedes."""

    directory: Path
    number: int = 1
    """Its number among the runs of one name, from 1."""
    supersedes: dict[str, int] | None = None
    step: int | None = None
    """The step that the attempt resumes after."""


def next_opening(named: Path, more: int = 1) -> int:
    """Count one more opening of a run below a name; returns how many there were, with this one."""
    _opened[named] += more
    return _opened[named]


def new_place(named: Path) -> RunPlace:
    """Return the first directory of this name that no run has used."""
    number = 1
    while _is_used(_numbered(named, number)):
        number += 1
    return RunPlace(_numbered(named, number), number)


def resumed_place(
    named: Path, is_checkpoint: Callable[[Record], bool], step: int | None = None
) -> RunPlace | None:
    """Return the newest run of this name that wrote a checkpoint, or else one that reached its step.

    The latter was killed after it wrote the checkpoint and before it recorded that. None if there is none:
    the checkpoint is of a training that was recorded elsewhere. Where the `step` of the checkpoint is not
    known, because a script counts its steps itself, it is the last one that was recorded before.
    """
    reached: RunPlace | None = None
    for place in reversed(list(_runs(named))):
        records = [record for record, _ in read_records(place.directory / JOURNAL)]
        counted = [one for one in counting(records) if one.get("event") in MEASURING]
        written = [one for one in counted if one.get("event") == "checkpoint" and is_checkpoint(one)]
        if written:
            seq = seq_of(written[-1])
            before = [_step(one) for one in counted if seq_of(one) < seq and one.get("event") != "checkpoint"]
            return _resumed(place, records, counted, max(before, default=-1) if step is None else step, seq)
        if reached is None and step is not None and any(_step(one) >= step for one in counted):
            reached = _resumed(place, records, counted, step, 0)
    return reached


def joined_place(named: Path, rank: int, opening: int, *, seconds: float = WAIT_FOR_RANK_0) -> RunPlace:
    """Return the directory that rank 0 of this launch has chosen for this opening, as soon as it has.

    RunDirectoryError if it has not after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        for place in _runs(named):
            run = run_of_this_launch(place.directory)
            if run is not None and run["attempts"][-1].get(OPENING) == opening:
                return place
        if time.monotonic() >= deadline:
            raise RunDirectoryError(
                f"rank {rank}: rank 0 has not opened a run in {named} for {seconds:.0f} s",
                hint="give the callback to the framework on every rank; rank 0 says what kept it",
            )
        time.sleep(LOOK_EVERY)


def named_directory(directory: Path) -> Path:
    """Return a directory by its absolute name, so that a program that changes its folder means the same."""
    return Path(os.path.abspath(directory))


def _resumed(place: RunPlace, records: list[Record], counted: list[Record], step: int, seq: int) -> RunPlace:
    """Return the place, with all superseded that was measured after a checkpoint and not of its step."""
    kept = [seq_of(one) for one in counted if seq_of(one) <= seq or 0 <= _step(one) <= step]
    first, last = max(kept, default=0) + 1, max(map(seq_of, records), default=0)
    gone = {"first_seq": first, "last_seq": last} if first <= last else None
    return RunPlace(place.directory, place.number, gone, max(step, 0))


def _runs(named: Path) -> Iterator[RunPlace]:
    number = 1
    while _is_used(directory := _numbered(named, number)):
        yield RunPlace(directory, number)
        number += 1


def _numbered(named: Path, number: int) -> Path:
    return named if number == 1 else named.with_name(f"{named.name}-{number}")


def _is_used(directory: Path) -> bool:
    return (directory / RUN_JSON).exists() or (directory / JOURNAL).exists()


def _step(record: Record) -> int:
    step = whole_step(record.get("global_step"))
    return -1 if step is None else step
