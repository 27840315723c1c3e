"""Finds the journals of a training's ranks and hosts, and has other ranks wait for rank 0.

Each rank writes a journal of its own in the run's one directory, and so does the agent of each sampled host.

Rank 0 registers the run, starts its agent and writes run.json; the others wait until it has, so that
all have the same run id and the same number of the attempt.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from monitoring.errors import RunDirectoryError
from monitoring.host.name import host_name
from monitoring.host.process import is_alive, own_age
from monitoring.journal.files import JOURNAL, RANK_JOURNALS, RUN_JSON, host_of, names_in, rank_of
from monitoring.journal.run_json import read_run_json

# Seconds that a rank waits for rank 0 to register the run, and between its looks.
WAIT_FOR_RANK_0 = 120.0
LOOK_EVERY = 0.02

# How much earlier than this process, by the clocks of two hosts, rank 0 may have registered the same attempt.
APART = 60.0


def rank_journals(directory: Path) -> dict[int, Path]:
    """Return the journals that there are, by rank."""
    found = {0: directory / JOURNAL} if (directory / JOURNAL).exists() else {}
    for path in directory.glob(RANK_JOURNALS):
        if (rank := rank_of(path.name)) is not None:
            found[rank] = path
    return dict(sorted(found.items()))


def sample_journals(directory: Path, kind: str) -> dict[str, Path]:
    """Host -> its journal of samples, of those that there are; rank 0's host is first, by an empty name.

    `kind` is the name that rank 0's host gives it.
    """
    hosts = {host: name for name in names_in(directory) if (host := host_of(name, kind)) is not None}
    return {
        host: directory / name for host, name in sorted(hosts.items(), key=lambda it: (it[0] != "", it[1]))
    }


def registered_by_rank_0(directory: Path, rank: int, *, seconds: float = WAIT_FOR_RANK_0) -> dict[str, Any]:
    """run.json as soon as rank 0 of this launch has written it.

    RunDirectoryError if it has not after so many seconds, or if run.json is not what a Run writes.
    """
    deadline = time.monotonic() + seconds
    begun = time.time() - own_age()
    while True:
        if (run := run_of_this_launch(directory, begun)) is not None:
            return run
        if time.monotonic() >= deadline:
            raise RunDirectoryError(
                f"rank {rank}: rank 0 has not opened the run in {directory} for {seconds:.0f} s",
                hint="open the run on every rank, in one directory that all see; rank 0 says what kept it",
            )
        time.sleep(LOOK_EVERY)


def run_of_this_launch(directory: Path, begun: float | None = None) -> dict[str, Any] | None:
    """run.json if rank 0 of this launch has written it; `begun` is when this process began, if that is known.

    RunDirectoryError if run.json is not what a Run writes.
    """
    if not (directory / RUN_JSON).exists():
        return None
    run = read_run_json(directory)
    since = time.time() - own_age() if begun is None else begun
    return run if _is_of_this_launch(run["attempts"][-1], since) else None


def _is_of_this_launch(attempt: dict[str, Any], begun: float) -> bool:
    """Whether an attempt is not one of an earlier launch, which run.json has until rank 0 registers again."""
    if attempt["host"] != host_name():
        # its pid means nothing on this host: only the clocks are left
        return bool(attempt["started"] >= begun - APART)
    return bool(attempt["started"] >= begun or is_alive(attempt))
