"""Runs as processes on this machine.

Each has a session of its own, so a Ctrl-C in the terminal reaches it only through `cancel`. On Linux the
kernel kills it when this process dies, however that happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kharness.matrix.errors import MatrixError
from kharness.matrix.launch import OUTPUT_LOG, Exit, Job, Launch, Launcher, Slot
from monitoring.process import process_started

# Make's own, and the word that make variables were given: a cell has them in its .config already.
NOT_FOR_RUNS = ("KHARNESS_MAKE_VARS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Options:
    """How local runs start."""

    zygote: bool = True
    """Fork them from a process that has imported torch."""


def open_launcher(options: Options) -> Launcher:
    return Local(options)


class Local:
    """One fresh process a run."""

    name = "local"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, launch: Launch, slot: Slot) -> Job:
        environment = {name: value for name, value in os.environ.items() if name not in NOT_FOR_RUNS}
        try:
            with (launch.directory / OUTPUT_LOG).open("ab") as log:
                process = subprocess.Popen(
                    launch.command,
                    cwd=launch.root,
                    env={**environment, "PYTHONUNBUFFERED": "1", **slot.environment()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_before_exec(slot.cores),
                )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise MatrixError(f"{launch.name} cannot be started: {reason}") from error
        self._processes[str(process.pid)] = process
        return Job(
            launcher=self.name,
            id=str(process.pid),
            host=socket.gethostname(),
            pid=process.pid,
            started=time.time(),
            process_started=process_started(process.pid),
        )

    def poll(self, job: Job) -> Exit | None:
        process = self._processes[job.id]
        # Looked at without collecting it: until then nobody else can get its id, so its group is surely ours.
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.cancel(job, kill=True)
        returned = process.wait()
        del self._processes[job.id]
        return Exit(
            exit_code=returned if returned >= 0 else None,
            signal=-returned if returned < 0 else None,
            ended=time.time(),
        )

    def cancel(self, job: Job, *, kill: bool) -> None:
        pid = self._processes[job.id].pid
        if not kill:
            os.kill(pid, signal.SIGTERM)
            return
        # PermissionError: on macOS, a group in which nothing is left but a process to be collected.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def alive(self, job: Job) -> bool:
        if job.pid is None or job.host != socket.gethostname():
            return False
        return process_started(job.pid) == job.process_started is not None

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


def _before_exec(cores: Sequence[int]) -> Callable[[], None]:
    """What the child does between fork and exec; only system calls, for little else is safe there."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        # nohup and background jobs make it ignored, and an ignored signal stays so over exec.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before prctl
                os._exit(1)

    return prepare
