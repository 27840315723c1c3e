"""The first rank of a host that rank 0 is not on: it starts the agent there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson

from monitoring.host.correlation import own_local_rank
from monitoring.host.name import host_name, in_file_names
from monitoring.journal.files import HostFiles


@dataclass(frozen=True)
class FirstRank:
    """One process, as run.json has that of rank 0."""

    rank: int
    attempt: int
    host: str
    started: float
    pid: int
    pid_started: float | None

    @classmethod
    def of(cls, argument: str) -> Self:
        """What `argument` made."""
        return cls(**orjson.loads(argument))

    @property
    def argument(self) -> str:
        """For the command line of the agent."""
        return orjson.dumps(asdict(self)).decode()

    @property
    def files(self) -> HostFiles:
        """Those of its host."""
        return HostFiles(in_file_names(self.host), self.rank)


def first_rank(run: Mapping[str, Any], rank: int, about: Mapping[str, Any]) -> FirstRank | None:
    """This process, if an agent of its own is to sample its host; None of any other process.

    `run` is the run.json of a run that asks for samples or not, `about` has the fields of FirstRank. The
    first rank of a host is that with LOCAL_RANK 0, or what Slurm and Open MPI call so.
    """
    is_sampled = run.get("gpu_monitor") or run.get("machine_monitor")
    if not is_sampled or run["attempts"][-1]["host"] == host_name() or own_local_rank() != 0:
        return None
    process = {name: about[name] for name in ("host", "started", "pid", "pid_started")}
    return FirstRank(rank=rank, attempt=run["attempts"][-1]["attempt"], **process)
