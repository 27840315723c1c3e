"""Job arrays: which cell each task is, and the arguments with which sbatch gets them.

No name of a user's is ever part of a script: the script is the same for all, and what a task runs is read
from a file. Indices begin at 0, for MaxArraySize limits the index, not the size.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kharness.runs.files import OUTPUT_LOG, SLURM
from kharness.runs.jobs.slurm_task import LEAVE, VOID
from kharness.runs.launch import Launch, Slot
from kharness.runs.rundir import has_plan
from monitoring.journal.atomic_file import write_atomically

SCRIPT = '#!/bin/sh\nexec "$@"\n'
PROGRAM = "kharness.runs.jobs.slurm_task"

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

    def arguments(self) -> list[str]:
        found = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={self.cpus}"]
        found += [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        found += [f"--mem={self.memory_mb}M"] if self.memory_mb else []
        for name in ("time_limit", "partition", "account", "qos"):
            if value := getattr(self, name):
                found.append(f"--{name.removesuffix('_limit')}={value}")
        found.append(f"--signal=B:{LEAVE.name.removeprefix('SIG')}@{self.signal_seconds}")
        return [*found, "--requeue", "--open-mode=append", *self.flags]


@dataclass
class Array:
    """One submission: the cells of its tasks, in order."""

    folder: Path
    """The folder of the matrix's files for Slurm."""
    root: Path
    request: TaskRequest
    name: str
    cells: list[tuple[Launch, Slot]] = field(default_factory=list)

    @classmethod
    def begin(cls, launch: Launch, request: TaskRequest) -> Array:
        """An empty one for a matrix, whose name nobody else has."""
        folder = folder_of(launch)
        shown = _PLAIN.sub("-", folder.parent.name)[:60]
        return cls(folder, launch.root, request, f"{shown}-{secrets.token_hex(4)}")

    def add(self, launch: Launch, slot: Slot) -> str:
        """The id of the task that is to run it."""
        self.cells.append((launch, slot))
        return f"{self.name}.{len(self.cells) - 1}"

    @property
    def listed(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def write(self) -> None:
        """Write what the tasks read, and send what Slurm itself says of a task to the log of its cell."""
        self.folder.mkdir(exist_ok=True)
        script = self.folder / "job.sh"
        if not script.exists():
            write_atomically(script, SCRIPT.encode(), durable=False)
        header = {"root": str(self.root.absolute()), "signal_seconds": self.request.signal_seconds}
        lines = [json.dumps(header)]
        for index, (launch, slot) in enumerate(self.cells):
            cell = {
                "name": launch.name,
                "directory": str(launch.directory.absolute()),
                "submission": f"{self.name}.{index}",
                "command": launch.command,
                "environment": slot.environment(),
            }
            lines.append(json.dumps([cell]))
            log = self.folder / f"{self.name}_{index}.log"
            log.symlink_to(launch.directory.absolute() / OUTPUT_LOG)
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
            *(sys.executable, "-m", PROGRAM, str(self.listed.absolute())),
        ]


def folder_of(launch: Launch) -> Path:
    """Where the files for Slurm of a cell's matrix are, or those of a single training."""
    parent = launch.directory.parent
    return (parent if has_plan(parent) else launch.directory) / SLURM


def name_and_index(job_id: str) -> tuple[str, int]:
    """Split the id that `Array.add` has given."""
    name, _, index = job_id.rpartition(".")
    return name, int(index)


def make_void(folder: Path, name: str) -> None:
    """Take back a submission of which nobody knows whether Slurm has got it: its tasks will do nothing."""
    (folder / f"{name}.jsonl").with_suffix(VOID).touch()
