"""The program of a job on Slurm with several cells, each forked from a process that has imported torch.

python -m kharness.matrix.launchers._slurm_packed LIST.jsonl

As many run at a time as the job has cores and GPUs for, shared out by the rules of one machine.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.runs.jobs import slurm_task
from kharness.runs.launch import Job, Launch, Slot

if TYPE_CHECKING:  # imported once signals to the job are noted, which a preemption does not wait for
    from kharness.matrix.launchers._forking import Forking
    from kharness.matrix.launchers._processes import Holder
    from kharness.matrix.machine.cores import Core
    from kharness.matrix.machine.devices import Gpus
    from kharness.matrix.machine.resources import MachineResources

# What Slurm sets to the GPUs of a job, and whose these are.
GPU_VARIABLES = {"CUDA_VISIBLE_DEVICES": "nvidia", "ROCR_VISIBLE_DEVICES": "amd"}


@dataclass(frozen=True)
class ListedLaunch(Launch):
    """The launch of a cell as the list has it."""

    listed: Sequence[str] = ()

    @property
    def program(self) -> list[str]:
        return list(self.listed)


class JobRoom:
    """The cores and GPUs that Slurm has given this job."""

    def __init__(self) -> None:
        self._resources: MachineResources | None = None
        self._gpus: Gpus | None = None
        self._is_bound = False
        self._places: list[CellPlace] = []
        self._next: tuple[str, ListedLaunch] | None = None
        """The cell that waits for a place, by its submission."""
        self._forking: Forking | None = None

    def place(self, header: Mapping[str, Any], cell: Mapping[str, Any]) -> CellPlace | None:
        if self._resources is None:
            self._resources = self._open(header)
        if self._next is None or self._next[0] != cell["submission"]:
            self._next = cell["submission"], _launch(header, cell)
        launch = self._next[1]
        slot = self._resources.acquire(launch, self._places)
        if slot is None:
            return None
        place = CellPlace(self, launch, slot, is_bound=self._is_bound)
        self._places.append(place)
        return place

    def start(self, launch: ListedLaunch, slot: Slot) -> PackedTraining:
        """Start a training; MatrixError if that cannot be done."""
        assert self._forking is not None
        pid, _ = self._forking.start(launch, slot)
        return PackedTraining(pid, self._forking.holder(pid))

    def free(self, place: CellPlace) -> None:
        assert self._resources is not None
        self._resources.release(place.slot)
        self._places.remove(place)

    def filenos(self) -> Sequence[int]:
        return self._forking.filenos() if self._forking is not None else ()

    def close(self) -> None:
        if self._forking is not None:
            self._forking.close()
        if self._gpus is not None:
            self._gpus.close()

    def _open(self, header: Mapping[str, Any]) -> MachineResources:
        from kharness.matrix.launchers._forking import Forking
        from kharness.matrix.machine.gpu_places import GpuPlaces
        from kharness.matrix.machine.resources import MachineResources

        self._forking = Forking(print, enabled=header["forks"])
        cores, self._is_bound = cores_of_job(os.environ)
        places, jobs = None, 0
        per_cell = header["gpus_per_cell"]
        if header["gpus"]:
            self._gpus = gpus_of_job(os.environ)
            if len(self._gpus.gpus) >= per_cell:
                percent = header["gpu_percent"]
                places = GpuPlaces(self._gpus, percent=percent, per_cell=per_cell, say=print)
            else:  # nobody says which there are: a cell has all that the job has
                jobs = 1
        vendors = {gpu.word: gpu.vendor for gpu in self._gpus.gpus} if self._gpus and places else {}
        return MachineResources(cores, places, vendors, jobs=jobs, say=print)


class CellPlace:
    """The cores and GPUs of one cell."""

    def __init__(self, room: JobRoom, launch: ListedLaunch, slot: Slot, *, is_bound: bool) -> None:
        """Without `is_bound` it has as many cores, and no certain ones."""
        self._room, self._launch = room, launch
        self.slot = slot
        self._own = replace(
            slot, threads=slot.num_threads or launch.threads, cores=slot.cores if is_bound else ()
        )
        own = self._own
        self.noted: Mapping[str, object] = slurm_task.slot_of_job(own.threads, own.cores, own.gpus)
        self._pid: int | None = None

    @property
    def job(self) -> Job:
        """The process, as those who look at the memory of GPUs know it."""
        from monitoring.host.name import host_name

        return Job("slurm", str(self._pid), host_name(), self._pid, time.time())

    def start(self) -> PackedTraining:
        from kharness.runs.errors import MatrixError

        try:
            training = self._room.start(self._launch, self._own)
        except MatrixError as error:
            raise OSError(0, str(error)) from error
        self._pid = training.pid
        return training

    def free(self) -> None:
        self._room.free(self)


class PackedTraining:
    """A process of its own group, which ends with all that it has started."""

    def __init__(self, pid: int, holder: Holder) -> None:
        self.pid, self._holder = pid, holder

    def poll(self) -> int | None:
        found = self._holder.poll(self.pid)
        if found is None:
            return None
        if found.signal is None and found.exit_code is None:  # lost with the process that it was forked from
            return -signal.SIGKILL
        return -found.signal if found.signal is not None else found.exit_code

    def send_signal(self, number: int) -> None:
        self._holder.signal(self.pid, number)

    def kill(self) -> None:
        self._holder.kill(self.pid)


def cores_of_job(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[list[Core], bool]:
    """The cores of this job, and whether cells may be bound to them.

    A site that binds no job to cores says only how many of the node's are the job's.
    """
    from kharness.matrix.machine.cores import usable_cores

    cores = usable_cores(root)
    given = int(environment.get("SLURM_CPUS_ON_NODE") or 0)
    if not given or sum(map(len, cores)) <= given:
        return cores, True
    return cores[:given], False


def gpus_of_job(environment: Mapping[str, str]) -> Gpus:
    """The GPUs of this job: as their driver has them, else by the names that Slurm has given them."""
    from kharness.matrix.machine.devices import Gpu, Gpus, find_gpus

    found = find_gpus()
    if found.gpus:
        return found
    found.close()
    named = Gpus(None)
    for variable, vendor in GPU_VARIABLES.items():
        words = [word for word in environment.get(variable, "").split(",") if word]
        if words:
            named.gpus = [Gpu(word, f"GPU {word}", vendor) for word in words]
            break
    return named


def _launch(header: Mapping[str, Any], cell: Mapping[str, Any]) -> ListedLaunch:
    from kharness.config.config_py import read_values
    from kharness.config.errors import ConfigError
    from kharness.config.places import CONFIG_PY

    directory = Path(cell["directory"])
    try:
        asked: dict[str, object] = dict(read_values(directory / CONFIG_PY))
    except ConfigError:  # anybody's program has none
        asked = {}
    if header["gpus"]:  # by what Slurm has said of the partition, where DEVICE=auto
        asked["DEVICE"] = "cuda"
    return ListedLaunch(
        cell["name"],
        directory,
        Path(header["root"]),
        "",
        asked,
        threads=cell["threads"],
        listed=cell["command"][1:],
    )


def main(argv: Sequence[str]) -> int:
    task = slurm_task.Task(is_packed=True)
    room = JobRoom()
    try:
        return slurm_task.main(argv, task=task, room=room)
    finally:
        room.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
