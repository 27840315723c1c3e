"""Data that the runner and every launcher exchange: what to run, where, and how it ended."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Protocol

from kharness.config.places import COMMAND, COMMAND_SCRIPT, TRAIN, model_folder
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_STOPPED

FROM_SCRATCH = "--from-scratch"
"""The flag of every training for a new attempt that takes nothing over from the ones before it."""

# Make's own, and the word that make variables were given: a cell has them in its .config already.
NOT_FOR_RUNS = (
    *("KHARNESS_GOALS", "KHARNESS_MAKE_VARS"),
    *("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"),
)

# torch then asks for pages of 2 MB for large tensors, of which a short run would else touch thousands of 4 KB
# for the first time: a sixth of its CPU time.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}


def copied_model(path: Path) -> Path:
    """Where copied sources have a file in the folder of a model outside of the tree."""
    return Path(".model", path.parent.name, path.name)


@dataclass(frozen=True)
class Launch:
    """A command to run."""

    name: str
    directory: Path
    """The run directory, with its `.config`; output goes to its output.log, appended."""
    root: Path
    """The checkout: where the command runs."""
    model: str
    asked: Mapping[str, object]
    """The values that it must run with."""
    arguments: Sequence[str] = ()
    """Further flags of the training, such as --from-scratch."""
    threads: int = 0
    """CPU threads that the plan gives it; 0 if nothing plans it."""
    sources: Path | None = None
    """The copy of the checkout that it trains from; None for `root` itself."""
    expected: float | None = None
    """Seconds that it is likely to take; None where that is not known."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self.program]

    @property
    def program(self) -> list[str]:
        """The command without the interpreter."""
        script = self.root / COMMAND_SCRIPT
        if not self.asked.get(COMMAND):
            script = model_folder(self.root, self.model) / TRAIN
        if self.sources is not None:
            is_own = script.is_relative_to(self.root)
            script = self.sources / (script.relative_to(self.root) if is_own else copied_model(script))
        return [self._shown(script), "--run-dir", self.shown_directory, *self.arguments]

    def device(self, gpus_per_cell: int) -> object:
        """Return the training's device: `cuda`, `cpu`, or `auto` for a GPU if there is one."""
        return self.asked.get("DEVICE")

    @property
    def shown_directory(self) -> str:
        return self._shown(self.directory)

    @property
    def command_line(self) -> str:
        """To be run by hand in the checkout."""
        command = shlex.join([self._shown(Path(sys.executable)), *self.program])
        if self.sources is None:
            return command
        return f"PYTHONPATH={shlex.quote(self._shown(self.sources / 'lib'))} {command}"

    def _shown(self, path: Path) -> str:
        """Return the path relative to the checkout."""
        # As texts: pathlib takes 20 us, and a matrix of 10,000 cells shows 40,000 of them.
        return str(path).removeprefix(os.path.join(self.root, ""))


@dataclass(frozen=True)
class Slot:
    """The part of a machine that a run may use; an empty field leaves the choice to the run."""

    threads: int = 0
    """CPU threads for tensor operations; with cores and without this, one per core."""
    cores: Sequence[int] = ()
    """The cores that it is bound to."""
    gpus: Sequence[str] = ()
    """UUIDs, or indices where a device has none."""
    gpu_vendor: str = "nvidia"

    @property
    def num_threads(self) -> int:
        """CPU threads for tensor operations, 0 for the run's own choice."""
        return self.threads or len(self.cores)

    def environment(self) -> dict[str, str]:
        """The variables that hold a run to its slot."""
        variables = {}
        if self.num_threads:
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
            variables.update(dict.fromkeys(names, str(self.num_threads)))
        if self.gpus and self.gpu_vendor == "amd":
            # ROCm takes UUIDs; HIP counts among what that leaves.
            variables["ROCR_VISIBLE_DEVICES"] = ",".join(self.gpus)
            variables["HIP_VISIBLE_DEVICES"] = ",".join(str(place) for place in range(len(self.gpus)))
        elif self.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return variables


def environment_of_runs(slot: Slot) -> dict[str, str]:
    """The environment of this process as a run gets it."""
    ours = {name: value for name, value in os.environ.items() if name not in NOT_FOR_RUNS}
    return {**HUGE_PAGES, **ours, "PYTHONUNBUFFERED": "1", **slot.environment()}


@dataclass(frozen=True)
class Job:
    """A launched run, as its launcher finds it again, also from another process."""

    launcher: str
    id: str
    """The launcher's own name for it: here a process id, on a cluster a job id."""
    host: str
    pid: int | None
    started: float
    """UTC epoch seconds."""
    process_started: float | None = None
    """Start time in the system's units; with the pid it identifies one process of the host."""


class Occupant(Protocol):
    """A run that holds its slot as long as it runs."""

    slot: Slot

    @property
    def job(self) -> Job: ...


@dataclass(frozen=True)
class Exit:
    """How a job ended, as far as the launcher knows."""

    exit_code: int | None
    """None for a process that a signal ended, or of which nothing is known."""
    signal: int | None
    ended: float
    """UTC epoch seconds."""
    cause: str | None = None
    """Where the launcher knows more than an exit code says: `out_of_memory`, `runner_died` …"""
    reason: str | None = None
    over_timeout: bool = False
    """Whether its job has ended it for TIMEOUT=, whoever watched."""


@dataclass(frozen=True)
class JobStart:
    """One start of a job; a scheduler that requeues a job starts it again."""

    job: str
    """The scheduler's own name for the job: `1234_7`."""
    restart: int
    """How often the job had been started before."""
    node: str
    started: float
    """UTC epoch seconds."""
    journal_offset: int
    """Where in metrics.jsonl its records begin, in bytes."""
    slot: Mapping[str, object] = field(default_factory=dict)
    """Cores and GPUs that the job got, as far as it sees them."""
    end: Exit | None = None
    requeued: bool = False
    """Whether it has asked the scheduler to start it again."""

    @property
    def was_stopped(self) -> bool:
        """Whether its training was told to end, and did; without a code of its own while it imports."""
        return self.end is not None and (
            self.end.exit_code in (EXIT_STOPPED, 128 + SIGTERM) or self.end.signal == SIGTERM
        )

    @property
    def is_over(self) -> bool:
        """Whether the run ended for good; one stopped by an unknown sender may be restarted."""
        return (
            self.end is not None and not self.requeued and not (self.was_stopped and self.end.cause is None)
        )


@dataclass(frozen=True)
class JobState:
    """How far a job of a scheduler is."""

    waits: bool
    """Whether the scheduler has not started it yet, or not again."""
    waiting: str = ""
    """Why it waits, in the scheduler's words, and when it is expected to start."""
    starts: Sequence[JobStart] = ()
    """The oldest first."""


class Launcher(Protocol):
    """Starts runs somewhere and reports how they end. One thread calls it."""

    name: str

    def submit(self, launch: Launch, slot: Slot) -> Job:
        """Start a run; MatrixError if it cannot be started."""

    def poll(self, job: Job) -> Exit | None:
        """How the job ended; None while it runs."""

    def cancel(self, job: Job, *, kill: bool) -> None:
        """Ask the training to save and stop (SIGTERM), or kill it and its children."""

    def alive(self, job: Job) -> bool:
        """Whether a job that an earlier runner submitted still runs."""

    def filenos(self) -> Sequence[int]:
        """Descriptors that become readable when a job may have ended."""

    def close(self) -> None:
        """End what the launcher itself keeps running, jobs included."""


class Scheduling(Launcher, Protocol):
    """A launcher whose jobs wait in the queue of a scheduler, and go on without the runner.

    `submit` only collects, so that a matrix is handed over in few calls.
    """

    def flush(self) -> bool:
        """Hand over what `submit` has collected; False while some of it has to wait for room in the queue."""

    def state(self, job: Job) -> JobState | None:
        """How far a job is; asks the scheduler no more often than `poll`."""

    def adopt(self, launch: Launch, job: Job) -> None:
        """Take over a job that an earlier runner has submitted."""

    def running(self, pairs: Sequence[tuple[Launch, Job]], *, claim: bool) -> Mapping[str, str]:
        """The ids of those jobs of earlier runners that run or wait, with why it waits: one question for all.

        With `claim` the scheduler will begin no other of them, also none whose submission was cut off.
        """

    def withdraw(self, pairs: Sequence[tuple[Launch, Job]], *, all_waiting: bool) -> int:
        """Take those out of the queue that wait with other options than this launcher's, or all.

        Returns how many. One that begins meanwhile goes on.
        """

    def ends(self, pairs: Sequence[tuple[Launch, Job]]) -> Mapping[str, Exit]:
        """How those have ended that do not run any more, where the scheduler knows more than their files."""

    def refusal(self) -> MatrixError | None:
        """Return why no job can run here, as the first ones showed; all have ended then."""
