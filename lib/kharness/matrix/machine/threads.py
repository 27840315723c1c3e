"""CPU threads per cell, fixed by the plan: the order of summation decides the last bits of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kharness.matrix.machine.cores import usable_cores
from kharness.matrix.machine.devices import find_gpus, torch_uses_gpus


@dataclass(frozen=True)
class Machine:
    """The machine a matrix was planned on."""

    cores: int
    """Number of physical cores that may be used."""
    gpus: int
    """0 where no cell wants one."""


def planning_machine(
    asked: Iterable[Mapping[str, object]], root: Path = Path("/"), settings: Mapping[str, object] = {}
) -> Machine:
    """This one, for cells that ask for these values; on a cluster the part of a node that each job gets."""
    if settings.get("LAUNCHER", "local") == "slurm":
        return Machine(_int(settings.get("LAUNCHER_SLURM_CPUS")) or 1, 0)
    gpus = 0
    if any(map(wants_gpu, asked)):
        with closing(find_gpus(root)) as found:
            gpus = len(found.gpus)
    return Machine(len(usable_cores(root)), gpus)


def threads_of(asked: Mapping[str, object], jobs: int, machine: Machine) -> int:
    """NUM_THREADS; where that is 0 the share of the cores that a cell has when `jobs` run at once."""
    if threads := _int(asked.get("NUM_THREADS")):
        return threads
    if machine.gpus and wants_gpu(asked):
        return max(1, machine.cores // max(jobs, machine.gpus))
    return max(1, machine.cores // (jobs or 1))


def wants_gpu(asked: Mapping[str, object]) -> bool:
    """Whether a cell will train on a GPU if it sees one."""
    return asked.get("DEVICE") == "cuda" or (asked.get("DEVICE") == "auto" and torch_uses_gpus())


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
