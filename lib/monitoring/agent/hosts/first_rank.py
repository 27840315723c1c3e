"""Finds the rank that starts the agent of a host that rank 0 is not on: the first one there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from monitoring.host import file_locks
from monitoring.host.correlation import own_local_rank
from monitoring.host.name import host_name, in_file_names
from monitoring.journal.files import FIRST_RANK_LOCK, HostFiles


@dataclass(frozen=True)
class FirstRank:
    """The first rank of a host, with the fields that run.json has of rank 0's process."""

    rank: int
    attempt: int
    host: str
    started: float
    pid: int
    pid_started: float | None

    @classmethod
    def of(cls, argument: str) -> Self:
        """Return the rank that `argument` encodes."""
        return cls(**orjson.loads(argument))

    @property
    def argument(self) -> str:
        """JSON for the command line of the agent, which `of` reads."""
        return orjson.dumps(asdict(self)).decode()

    @property
    def files(self) -> HostFiles:
        """The names of its host's files."""
        return HostFiles(in_file_names(self.host), self.rank)


def first_rank(
    directory: Path, run: Mapping[str, Any], rank: int, about: Mapping[str, Any]
) -> FirstRank | None:
    """Return this process if it has to start the agent of its host, else None.

    `run` is the content of run.json, `about` has the fields of FirstRank. The first rank of a host is the one
    with local rank 0 (correlation.LAUNCHERS), or, where no launcher numbers them, the one that comes first.
    """
    is_sampled = run.get("gpu_monitor") or run.get("machine_monitor")
    if not is_sampled or run["attempts"][-1]["host"] == host_name():
        return None
    process = {name: about[name] for name in ("host", "started", "pid", "pid_started")}
    this = FirstRank(rank=rank, attempt=run["attempts"][-1]["attempt"], **process)
    local_rank = own_local_rank()
    is_first = local_rank == 0 if local_rank is not None else _comes_first(directory, this.files)
    return this if is_first else None


# Path of a lock -> the descriptor by which this process holds it until it ends.
_held: dict[Path, int] = {}


def _comes_first(directory: Path, files: HostFiles) -> bool:
    """Whether no other living process of this host has the lock; False on file systems without locks."""
    path = directory / files.name(FIRST_RANK_LOCK)
    if _held.get(path) in file_locks.held():  # an earlier run of this process in the same directory
        return True
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return False
    try:
        is_ours = file_locks.try_lock(fd)
    except OSError:
        is_ours = False
    if not is_ours:
        os.close(fd)
        return False
    file_locks.hold(fd)  # a child must not keep it
    _held[path] = fd
    return True
