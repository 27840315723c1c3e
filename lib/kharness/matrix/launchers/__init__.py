"""Launchers: each module of this folder starts runs in one way.

A module defines `Options`, a frozen dataclass given from the settings of the matrix (local.py's `fork_server`
is LAUNCHER_LOCAL_FORK_SERVER), and `open_launcher(options, say) -> Launcher`; `say` prints a line for the
user. One whose launcher is a `Scheduling` says `SCHEDULES = True`, and may define `check(options, launches)`,
which raises for what the scheduler would refuse, and `describe(options, launches)`, lines for a dry run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any, TypeVar, cast

from kharness.config.writing import guarded
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import ERROR
from kharness.runs.launch import Exit, Job, JobState, Launch, Launcher, Scheduling, Slot
from monitoring.dropins import DropIns

# Seconds for which a launcher may fail to say how a job is.
PATIENCE = 600.0

# Settings with which the local launcher starts no process before a run.
STARTS_NO_SERVERS = {"LAUNCHER_LOCAL_FORK_SERVER": False}

AnswerT = TypeVar("AnswerT")

LAUNCHERS = DropIns(
    "launcher",
    "kharness.matrix.launchers",
    kconfig=("../Kconfig",),
    symbols={
        "slurm_cells_per_job": "MATRIX_CELLS_PER_JOB",
        "slurm_gpus_per_cell": "MATRIX_GPUS_PER_CELL",
        "slurm_gpu_percent": "MAX_GPU_MEMORY_PERCENT",
        "slurm_jobs": "MATRIX_JOBS",
        "slurm_timeout": "MATRIX_TIMEOUT",
        "slurm_fork_server": "LAUNCHER_LOCAL_FORK_SERVER",
    },
    unknown=MatrixError,
    refused=MatrixError,
)


def open_launcher(
    name: str, settings: Mapping[str, object], say: Callable[[str], None] = lambda _: None
) -> Guarded:
    """The launcher of that name with its options from `settings`; MatrixError for an unknown one."""
    return Guarded(LAUNCHERS.load(name).open_launcher(LAUNCHERS.options(name, settings), say), say)


def schedules(settings: Mapping[str, object]) -> bool:
    """Whether the runs of these settings wait in the queue of a scheduler, which has its own machines."""
    name = str(settings.get("LAUNCHER", "local"))
    return name != "local" and bool(getattr(LAUNCHERS.load(name), "SCHEDULES", False))


def settings_of_one(values: Mapping[str, object]) -> dict[str, object]:
    """The settings of a single training, of its configuration: where it runs, and nothing of a matrix."""
    names = [name for name in values if name.startswith("LAUNCHER") or name == "MATRIX_GPUS_PER_CELL"]
    return {name: values[name] for name in names}


def check_launcher(settings: Mapping[str, object], launches: Sequence[Launch]) -> None:
    """Raise MatrixError for settings that this launcher could not start."""
    if launches and (check := _offered(settings, "check")):
        check(launches)


def launcher_lines(settings: Mapping[str, object], launches: Sequence[Launch]) -> list[str]:
    """Lines of a dry run about a launcher that has more to say than its name."""
    describe = _offered(settings, "describe") if launches else None
    lines: list[str] = describe(launches) if describe else []
    return lines


def queue_line(settings: Mapping[str, object]) -> str:
    """Say to which of a scheduler's queues runs go, and how they go to another; empty without any."""
    queue = _offered(settings, "queue")
    return str(queue()) if queue else ""


def _offered(settings: Mapping[str, object], function: str) -> Callable[..., Any] | None:
    """A function that the module of a launcher may define, with its options; None without it."""
    name = str(settings.get("LAUNCHER", "local"))
    found = getattr(LAUNCHERS.load(name), function, None) if name != "local" else None
    return partial(found, LAUNCHERS.options(name, settings)) if found else None


def jobs_of(
    pairs: Sequence[tuple[Launch, Job]], settings: Mapping[str, object], *, claim: bool = False
) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Exit]]:
    """Launcher and id of those jobs of earlier runners that run or wait, with why; each is asked only once.

    With `claim` no other can begin any more: what is not among them may be started again. And how others have
    ended, where a scheduler knows more than their files.
    """
    found: dict[tuple[str, str], str] = {}
    ended: dict[tuple[str, str], Exit] = {}
    for launcher, its in _each_launcher(pairs, settings):
        running = launcher.running(its, claim=claim)
        found |= {(launcher.name, job): why for job, why in running.items()}
        if claim:
            over = [(launch, job) for launch, job in its if job.id not in running]
            ended |= {(launcher.name, job): end for job, end in launcher.ends(over).items()}
    return found, ended


def withdraw(pairs: Sequence[tuple[Launch, Job]], settings: Mapping[str, object]) -> int:
    """Take jobs out of a scheduler's queue that wait there with other options than `settings`; how many.

    MatrixError where the scheduler does not answer.
    """
    asked = settings.get("LAUNCHER")
    return sum(
        launcher.withdraw(its, all_waiting=launcher.name != asked)
        for launcher, its in _each_launcher(pairs, settings)
    )


def _each_launcher(
    pairs: Sequence[tuple[Launch, Job]], settings: Mapping[str, object]
) -> Iterator[tuple[Guarded, Sequence[tuple[Launch, Job]]]]:
    """Yield the launcher of some jobs with these; it is closed after them."""
    for name in dict.fromkeys(job.launcher for _, job in pairs):
        with closing(open_launcher(name, {**settings, **STARTS_NO_SERVERS})) as launcher:
            yield launcher, [(launch, job) for launch, job in pairs if job.launcher == name]


class Guarded:
    """Wraps a launcher, so that an error of it costs the run it concerns and never the matrix."""

    def __init__(self, launcher: Launcher, say: Callable[[str], None]) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._warn = cache(lambda line: say(f"warning: {line}"))  # each once
        self._failing: dict[str, float] = {}  # job -> since when nothing is known of it

    def is_ready(self, launch: Launch) -> bool:
        """Whether `submit` would not wait, as far as the launcher says so."""
        ask = getattr(self._launcher, "is_ready", None)
        return ask is None or self._guarded(lambda: bool(ask(launch)), True)

    def submit(self, launch: Launch, slot: Slot) -> Job:
        return self._named(
            f"cannot start {launch.name}",
            lambda: self._launcher.submit(launch, slot),
            passes=(MatrixError, OSError),
        )

    def poll(self, job: Job) -> Exit | None:
        """Poll the launcher; a job it cannot tell about for PATIENCE seconds is given up."""
        try:
            found = self._launcher.poll(job)
        except Exception as error:  # noqa: BLE001 - a launcher is called here; a queue may answer again
            reason = str(self._error("does not know how a job is", error))
            self._warn(reason)
            if time.monotonic() - self._failing.setdefault(job.id, time.monotonic()) < PATIENCE:
                return None
            self.cancel(job, kill=True)
            return Exit(None, None, time.time(), ERROR, reason)
        self._failing.pop(job.id, None)
        return found

    def cancel(self, job: Job, *, kill: bool) -> None:
        self._guarded(lambda: self._launcher.cancel(job, kill=kill), None)

    def alive(self, job: Job) -> bool:
        return self._named(f"does not know whether job {job.id} runs", lambda: self._launcher.alive(job))

    @property
    def schedules(self) -> bool:
        """Whether it is a `Scheduling`."""
        return hasattr(self._launcher, "flush")

    def flush(self) -> bool:
        return self._guarded(self._scheduling.flush, True) if self.schedules else True

    def state(self, job: Job) -> JobState | None:
        """How far a scheduler's job is; None where the launcher has no queue."""
        return self._guarded(lambda: self._scheduling.state(job), None) if self.schedules else None

    def adopt(self, launch: Launch, job: Job) -> None:
        self._scheduling.adopt(launch, job)

    def running(self, pairs: Sequence[tuple[Launch, Job]], *, claim: bool) -> Mapping[str, str]:
        """The ids of those that run or wait, with why; MatrixError where that cannot be known."""
        if not self.schedules:
            return {job.id: "" for _, job in pairs if self.alive(job)}
        return self._named(
            "does not know which jobs run", lambda: self._scheduling.running(pairs, claim=claim)
        )

    def withdraw(self, pairs: Sequence[tuple[Launch, Job]], *, all_waiting: bool) -> int:
        if not hasattr(self._launcher, "withdraw"):
            return 0
        return self._named(
            "cannot take back what waits",
            lambda: self._scheduling.withdraw(pairs, all_waiting=all_waiting),
            passes=(),
        )

    def ends(self, pairs: Sequence[tuple[Launch, Job]]) -> Mapping[str, Exit]:
        """How jobs have ended that do not run any more, as far as a scheduler knows."""
        if not hasattr(self._launcher, "ends"):
            return {}
        return self._guarded(lambda: self._scheduling.ends(pairs), {})

    def refusal(self) -> MatrixError | None:
        """See Scheduling."""
        return self._scheduling.refusal() if hasattr(self._launcher, "refusal") else None

    @property
    def _scheduling(self) -> Scheduling:
        return cast(Scheduling, self._launcher)

    def filenos(self) -> Sequence[int]:
        return self._guarded(self._launcher.filenos, ())

    def close(self) -> None:
        self._guarded(self._launcher.close, None)

    def _named(
        self, what: str, ask: Callable[[], AnswerT], passes: tuple[type[Exception], ...] = (MatrixError,)
    ) -> AnswerT:
        """Return the answer of the launcher; what fails in it is a MatrixError, unless it passes."""
        try:
            return ask()
        except passes:
            raise
        except Exception as error:
            raise self._error(what, error) from error

    def _guarded(self, ask: Callable[[], AnswerT], instead: AnswerT) -> AnswerT:
        """Return the answer of the launcher, or `instead`: what fails in it is a warning."""
        answer: AnswerT = guarded(f"launcher {self.name}", ask, instead, self._warn)
        return answer

    def _error(self, what: str, error: Exception) -> MatrixError:
        return MatrixError(f"launcher {self.name} {what}: {type(error).__name__}: {error}")
