"""CPU threads per cell, fixed by the plan: the order of summation decides the last bits of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kharness.config.values import whole
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
        return Machine(whole(settings, "LAUNCHER_SLURM_CPUS") or 1, 0)
    gpus = 0
    if any(wants_gpu(one.get("DEVICE")) for one in asked):
        with closing(find_gpus(root)) as found:
            gpus = len(found.gpus)
    return Machine(len(usable_cores(root)), gpus)


def cells_at_once(asked: Mapping[str, object], settings: Mapping[str, object]) -> int:
    """How many cells share the cores: MATRIX_JOBS, and on Slurm those of one job; 0 for as many as fit."""
    if settings.get("LAUNCHER", "local") != "slurm":
        return whole(settings, "MATRIX_JOBS", 1)
    gpus, device = whole(settings, "LAUNCHER_SLURM_GPUS"), asked.get("DEVICE")
    if device == "cuda" or (device == "auto" and gpus):
        room = max(1, gpus // (whole(settings, "MATRIX_GPUS_PER_CELL") or 1))
    else:
        room = whole(settings, "LAUNCHER_SLURM_CPUS") or 1
    return min(room, whole(settings, "MATRIX_CELLS_PER_JOB", 1) or room)


def threads_of(asked: Mapping[str, object], jobs: int, machine: Machine) -> int:
    """NUM_THREADS; where that is 0 the share of the cores that a cell has when `jobs` run at once."""
    if threads := whole(asked, "NUM_THREADS"):
        return threads
    if machine.gpus and wants_gpu(asked.get("DEVICE")):
        return max(1, machine.cores // max(jobs, machine.gpus))
    return max(1, machine.cores // (jobs or 1))


def wants_gpu(device: object) -> bool:
    """Whether a cell with this DEVICE will train on a GPU if it sees one."""
    return device == "cuda" or (device == "auto" and torch_uses_gpus())
