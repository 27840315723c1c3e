"""Launchers: each module of this folder starts runs in one way.

A module defines `Options`, a frozen dataclass given from the settings of the matrix (`zygote` of local.py is
LAUNCHER_LOCAL_ZYGOTE), and `open_launcher(options, say) -> Launcher`; `say` prints a line for the user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kharness.config.writing import guarded
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import ERROR
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot
from monitoring.dropins import DropIns

# Seconds for which a launcher may fail to say how a job is.
PATIENCE = 600.0

# Settings with which the local launcher starts no process before a run.
STARTS_NO_SERVERS = {"LAUNCHER_LOCAL_ZYGOTE": False}

LAUNCHERS = DropIns(
    "launcher",
    "kharness.matrix.launchers",
    kconfig=("../Kconfig",),
    unknown=MatrixError,
    refused=MatrixError,
)


def open_launcher(
    name: str, settings: Mapping[str, object], say: Callable[[str], None] = lambda _: None
) -> Launcher:
    """The launcher of that name with its options from `settings`; MatrixError for an unknown one."""
    return Guarded(LAUNCHERS.load(name).open_launcher(LAUNCHERS.options(name, settings), say), say)


def launcher_of(job: Job) -> Launcher:
    """Return the launcher to ask about a job that it was given earlier; nothing is prepared for new runs."""
    return open_launcher(job.launcher, STARTS_NO_SERVERS)


class Guarded:
    """A launcher that may fail in any way: that costs the run it is asked about, never the matrix."""

    def __init__(self, launcher: Launcher, say: Callable[[str], None]) -> None:
        self.name = launcher.name
        self._launcher, self._say = launcher, say
        self._said: set[str] = set()
        self._failing: dict[str, float] = {}  # job -> since when nothing is known of it

    def submit(self, launch: Launch, slot: Slot) -> Job:
        try:
            return self._launcher.submit(launch, slot)
        except (MatrixError, OSError):
            raise
        except Exception as error:
            raise self._error(f"cannot start {launch.name}", error) from error

    def poll(self, job: Job) -> Exit | None:
        """Poll by the launcher; a job of which it cannot say anything for PATIENCE seconds is given up."""
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
        guarded(f"launcher {self.name}", lambda: self._launcher.cancel(job, kill=kill), None, self._warn)

    def alive(self, job: Job) -> bool:
        try:
            return self._launcher.alive(job)
        except MatrixError:
            raise
        except Exception as error:
            raise self._error(f"does not know whether job {job.id} runs", error) from error

    def filenos(self) -> Sequence[int]:
        return guarded(f"launcher {self.name}", self._launcher.filenos, (), self._warn)

    def close(self) -> None:
        guarded(f"launcher {self.name}", self._launcher.close, None, self._warn)

    def _error(self, what: str, error: Exception) -> MatrixError:
        return MatrixError(f"launcher {self.name} {what}: {type(error).__name__}: {error}")

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(f"warning: {line}")
