"""Job arrays: which cell each task is, and the arguments with which sbatch gets them.

No name of a user's is ever part of a script: the script is the same for all, and what a task runs is read
from a file. Indices begin at 0, for MaxArraySize limits the index, not the size.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kharness.runs.files import JOB_JSONL, OUTPUT_LOG, SLURM
from kharness.runs.jobs.slurm_task import KILL, LEAVE, STOP_FILE, VOID
from kharness.runs.launch import Launch, Slot
from kharness.runs.rundir import has_plan
from monitoring.journal.atomic_file import write_atomically

SCRIPT = '#!/bin/sh\nexec "$@"\n'
PROGRAM = "kharness.runs.jobs.slurm_task"
PACKED_PROGRAM = "kharness.matrix.launchers._slurm_packed"

# Seconds that a job of several cells is to take, where they are known: sites ask for 10 to 30 minutes.
JOB_SECONDS = 20 * 60.0

LOG_TAIL = 8192

NOTHING: Mapping[str, object] = {}

# What stands for itself in a file name pattern of Slurm's and in the list of names of squeue.
_PLAIN = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True)
class TaskRequest:
    """The resources of one task, and how sbatch is to treat it."""

    cpus: int
    gpus: int = 0
    memory_mb: int = 0
    time_limit: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    signal_seconds: int = 60
    flags: Sequence[str] = ()
    at_once: int = 1
    """Cells of a task that it has room for at a time."""

    def arguments(self) -> list[str]:
        found = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={self.cpus}"]
        found += [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        found += [f"--mem={self.memory_mb}M"] if self.memory_mb else []
        for name in ("time_limit", "partition", "account", "qos"):
            if value := getattr(self, name):
                found.append(f"--{name.removesuffix('_limit')}={value}")
        found.append(f"--signal=B:{LEAVE.name.removeprefix('SIG')}@{self.signal_seconds}")
        return [*found, "--requeue", "--open-mode=append", *self.flags]


@dataclass(frozen=True)
class TaskCells:
    """How a task runs its cells."""

    most: int = 1
    """Cells of a task; 0 for as many as take JOB_SECONDS."""
    timeout: float = 0.0
    """Seconds of a cell, 0 for no limit."""
    forks: bool = False
    """Whether cells are forked from a process that has imported torch, where a task has several."""
    gpus_per_cell: int = 1
    gpu_percent: float = 90.0
    """Share of a GPU's memory that cells may fill."""

    @property
    def packed(self) -> bool:
        return self.most != 1

    def has_room(self, task: Sequence[tuple[Launch, Slot]], launch: Launch, at_once: int) -> bool:
        """Whether a task with these cells, which runs `at_once` of them, takes one more."""
        if self.most:
            return len(task) < self.most
        known = [one.expected or 0.0 for one in (*(earlier for earlier, _ in task), launch)]
        return all(known) and max(known) <= JOB_SECONDS and sum(known) <= JOB_SECONDS * at_once


@dataclass
class Array:
    """One submission: the cells of its tasks, in order."""

    folder: Path
    """The folder of the matrix's files for Slurm."""
    root: Path
    request: TaskRequest
    name: str
    of_task: TaskCells = TaskCells()
    asked: Mapping[str, object] = field(default_factory=dict)
    """The launcher's options, for whoever is to submit its cells with others."""
    tasks: list[list[tuple[Launch, Slot]]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        launch: Launch,
        request: TaskRequest,
        of_task: TaskCells = TaskCells(),
        asked: Mapping[str, object] = NOTHING,
    ) -> Array:
        """Return an empty array for a matrix, under a name that nobody else has."""
        folder = folder_of(launch)
        shown = _PLAIN.sub("-", folder.parent.name)[:60]
        return cls(folder, launch.root, request, f"{shown}-{os.urandom(4).hex()}", of_task, asked)

    def needs_task(self, launch: Launch) -> bool:
        """Whether it would be the first of another task."""
        return not self.tasks or not self.of_task.has_room(self.tasks[-1], launch, self.request.at_once)

    def add(self, launch: Launch, slot: Slot) -> str:
        """The id of its submission."""
        if self.needs_task(launch):
            self.tasks.append([])
        self.tasks[-1].append((launch, slot))
        return self.ids(len(self.tasks) - 1)[-1]

    def ids(self, index: int) -> list[str]:
        """The submissions that a task has, in the order in which it runs them."""
        name = f"{self.name}.{index}"
        return [f"{name}-{k}" for k in range(len(self.tasks[index]))] if self.of_task.packed else [name]

    @property
    def listed(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def write(self) -> None:
        """Write what the tasks read, and send what Slurm itself says of a task to the log of its cell."""
        self.folder.mkdir(exist_ok=True)
        script = self.folder / "job.sh"
        if not script.exists():
            write_atomically(script, SCRIPT.encode(), durable=False)
        header = {
            "root": str(self.root.absolute()),
            "signal_seconds": self.request.signal_seconds,
            "cell_seconds": self.of_task.timeout,
            "packed": self.of_task.packed,
            "forks": self.of_task.forks,
            "gpus": self.request.gpus,
            "gpus_per_cell": self.of_task.gpus_per_cell,
            "gpu_percent": self.of_task.gpu_percent,
            "asked": self.asked,
        }
        lines = [json.dumps(header)]
        for index, cells in enumerate(self.tasks):
            found = [
                {
                    "name": launch.name,
                    "directory": str(launch.directory.absolute()),
                    "submission": submission,
                    "command": launch.command,
                    "environment": slot.environment(),
                    "threads": slot.threads,
                }
                for (launch, slot), submission in zip(cells, self.ids(index), strict=True)
            ]
            lines.append(json.dumps(found))
            if not self.of_task.packed:
                log = self.folder / f"{self.name}_{index}.log"
                log.symlink_to(cells[0][0].directory.absolute() / OUTPUT_LOG)
        write_atomically(self.listed, "".join(f"{line}\n" for line in lines).encode(), durable=False)

    def arguments(self, first: int, last: int, *, at_once: int = 0, after: str = "") -> list[str]:
        """The arguments of sbatch for the tasks from `first` to `last`; `at_once` is 0 for all."""
        throttle = f"%{at_once}" if at_once else ""
        log = str(self.folder.absolute() / f"{self.name}_%a.log")
        pattern = log.replace("%", "%%").replace("%%a.log", "%a.log")
        return [
            f"--array={first}-{last}{throttle}",
            f"--job-name={self.name}",
            f"--chdir={self.root.absolute()}",
            f"--output={pattern}",
            *self.request.arguments(),
            *([f"--dependency=afterany:{after}"] if after else []),
            str(self.folder.absolute() / "job.sh"),
            *(
                sys.executable,
                "-m",
                PACKED_PROGRAM if self.of_task.packed else PROGRAM,
                str(self.listed.absolute()),
            ),
        ]


def folder_of(launch: Launch) -> Path:
    """Where the files for Slurm of a cell's matrix are, or those of a single training."""
    parent = launch.directory.parent
    return (parent if has_plan(parent) else launch.directory) / SLURM


def asked_of(folder: Path, name: str) -> dict[str, object] | None:
    """The options that an array was submitted with; None where its file does not say."""
    try:
        with (folder / f"{name}.jsonl").open() as file:
            found = json.loads(file.readline()).get("asked")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, dict) else None


def end_of_log(launch: Launch, job_id: str) -> list[str]:
    """The last lines of the log of a task, which has what Slurm itself says; none where there is no log."""
    name, index = name_and_index(job_id)
    try:
        with (folder_of(launch) / f"{name}_{index}.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def has_begun_there(folder: Path) -> bool:
    """Whether a job of the matrix or the training whose files for Slurm these are has ever begun."""
    return any(any(folder.parent.glob(pattern)) for pattern in (JOB_JSONL, f"*/{JOB_JSONL}"))


def name_and_index(job_id: str) -> tuple[str, int]:
    """The array and the task of an id that `Array.add` has given."""
    name, _, index = job_id.rpartition(".")
    return name, int(index.partition("-")[0])


def is_packed(job_id: str) -> bool:
    """Whether its task may have other cells, too."""
    return "-" in job_id.rpartition(".")[2]


def leave_stop(launch: Launch, job_id: str, *, kill: bool) -> None:
    """Leave word for a packed task: its cell of this id is not to begin, or to end."""
    folder = folder_of(launch)
    folder.mkdir(exist_ok=True)
    word = KILL if kill else ""
    write_atomically(folder / f"{job_id}{STOP_FILE}", word.encode(), durable=False)


def make_void(folder: Path, name: str) -> None:
    """Take back a submission of which nobody knows whether Slurm has got it: its tasks will do nothing."""
    (folder / f"{name}.jsonl").with_suffix(VOID).touch()
