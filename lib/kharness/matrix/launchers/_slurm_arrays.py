"""Job arrays: which cell each task is, and the arguments with which sbatch gets them.

No name of a user's is ever part of a script: the script is the same for all, and what a task runs is read
from a file. Indices begin at 0, for MaxArraySize limits the index, not the size.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass, field
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

# What stands for itself in a file name pattern of Slurm's and in the list of names of squeue.
_PLAIN = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True)
class SlurmOptions:
    """How jobs are submitted: the launcher's options."""

    partition: str
    account: str
    qos: str
    time_limit: str
    """In Slurm's form, `30`, `2:00:00` or `1-12`; empty for the partition's own."""
    memory_mb: int
    """0 for the partition's own."""
    cpus: int
    """0 for as many as a cell has threads, and with `gpus` for each cell that these are for."""
    gpus: int
    """For a job of several cells; 0 for one of a single cell."""
    signal_seconds: int
    """How long before its time limit a training is told to save."""
    sbatch: str
    """Further flags, each `--name=value`."""
    jobs: int
    """MATRIX_JOBS: at once, over all arrays; 0 for as many as Slurm allows."""
    gpus_per_cell: int
    """MATRIX_GPUS_PER_CELL, for cells that train on GPUs; 0 for programs for which none were asked."""
    cells_per_job: int
    """MATRIX_CELLS_PER_JOB: of one task; 0 for as many as take a while, where their durations are known."""
    timeout: int
    """MATRIX_TIMEOUT: seconds of one attempt; 0 for no limit."""
    fork_server: bool
    """LAUNCHER_LOCAL_FORK_SERVER: whether the cells of one task are forked."""
    gpu_percent: int
    """MAX_GPU_MEMORY_PERCENT, where cells of one task share a GPU."""

    @property
    def packed(self) -> bool:
        """Whether a task may have several cells."""
        return self.cells_per_job != 1

    @property
    def per_cell(self) -> int:
        """GPUs of a cell that trains on some."""
        return max(1, self.gpus_per_cell)

    @property
    def asked(self) -> dict[str, object]:
        """The options that a job is submitted with, without how many there are and how cells start."""
        return {name: value for name, value in asdict(self).items() if name not in ("jobs", "fork_server")}


@dataclass(frozen=True)
class TaskRequest:
    """The resources of one task; its options say how sbatch is to treat it, and how it runs its cells."""

    options: SlurmOptions
    cpus: int
    gpus: int = 0
    at_once: int = 1
    """Cells that it has room for at a time."""

    def arguments(self) -> list[str]:
        asked = self.options
        found = ["--nodes=1", "--ntasks=1", f"--cpus-per-task={self.cpus}"]
        found += [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        found += [f"--mem={asked.memory_mb}M"] if asked.memory_mb else []
        for name in ("time_limit", "partition", "account", "qos"):
            if value := getattr(asked, name):
                found.append(f"--{name.removesuffix('_limit')}={value}")
        # B: to the job's script alone, which is our program; it passes the request on to its trainings
        # (sbatch(1))
        found.append(f"--signal=B:{LEAVE.name.removeprefix('SIG')}@{asked.signal_seconds}")
        # a job that is started again must not empty the log, as the default of some sites would
        return [*found, "--requeue", "--open-mode=append", *shlex.split(asked.sbatch)]


@dataclass
class Array:
    """One submission: the cells of its tasks, in order."""

    folder: Path
    """The folder of the matrix's files for Slurm."""
    root: Path
    request: TaskRequest
    name: str
    tasks: list[list[tuple[Launch, Slot]]] = field(default_factory=list)

    @classmethod
    def begin(cls, launch: Launch, request: TaskRequest) -> Array:
        """Return an empty array for a matrix, under a name that nobody else has."""
        folder = folder_of(launch)
        shown = _PLAIN.sub("-", folder.parent.name)[:60]
        return cls(folder, launch.root, request, f"{shown}-{os.urandom(4).hex()}")

    def needs_task(self, launch: Launch) -> bool:
        """Whether it would be the first of another task."""
        most = self.request.options.cells_per_job
        if not self.tasks or most:
            return not self.tasks or len(self.tasks[-1]) >= most
        known = [one.expected or 0.0 for one in (*(earlier for earlier, _ in self.tasks[-1]), launch)]
        longest = JOB_SECONDS * self.request.at_once
        return not all(known) or max(known) > JOB_SECONDS or sum(known) > longest

    def add(self, launch: Launch, slot: Slot) -> str:
        """The id of its submission."""
        if self.needs_task(launch):
            self.tasks.append([])
        self.tasks[-1].append((launch, slot))
        return self.ids(len(self.tasks) - 1)[-1]

    def ids(self, index: int) -> list[str]:
        """The submissions that a task has, in the order in which it runs them."""
        name = f"{self.name}.{index}"
        return (
            [f"{name}-{k}" for k in range(len(self.tasks[index]))] if self.request.options.packed else [name]
        )

    @property
    def listed(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def write(self) -> None:
        """Write what the tasks read, and send what Slurm itself says of a task to the log of its cell."""
        self.folder.mkdir(exist_ok=True)
        script = self.folder / "job.sh"
        if not script.exists():
            write_atomically(script, SCRIPT.encode(), durable=False)
        options = self.request.options
        header = {
            "root": str(self.root.absolute()),
            "signal_seconds": options.signal_seconds,
            "cell_seconds": options.timeout,
            "packed": options.packed,
            "forks": options.fork_server,
            "gpus": self.request.gpus,
            "gpus_per_cell": options.per_cell,
            "gpu_percent": options.gpu_percent,
            "asked": options.asked,  # for whoever is to submit its cells with others
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
            if not options.packed:
                log = self.folder / f"{self.name}_{index}.log"
                log.symlink_to(cells[0][0].directory.absolute() / OUTPUT_LOG)
        write_atomically(self.listed, "".join(f"{line}\n" for line in lines).encode(), durable=False)

    def arguments(self, first: int, last: int, *, at_once: int = 0, after: str = "") -> list[str]:
        """The arguments of sbatch for the tasks from `first` to `last`; `at_once` is 0 for all."""
        throttle = f"%{at_once}" if at_once else ""
        log = str(self.folder.absolute() / f"{self.name}_%a.log")
        # a % of the path itself would begin a pattern of sbatch
        pattern = log.replace("%", "%%").replace("%%a.log", "%a.log")
        return [
            f"--array={first}-{last}{throttle}",
            f"--job-name={self.name}",
            f"--chdir={self.root.absolute()}",
            f"--output={pattern}",
            *self.request.arguments(),
            *([f"--dependency=afterany:{after}"] if after else []),
            str(self.folder.absolute() / "job.sh"),
            *(sys.executable, "-m", PACKED_PROGRAM if self.request.options.packed else PROGRAM),
            str(self.listed.absolute()),
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
