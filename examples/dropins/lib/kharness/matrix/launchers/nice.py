"""Runs as processes on this machine that leave the cores to others."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot
from monitoring.host.process import process_started


@dataclass(frozen=True)
class Options:
    """How much they leave to others."""

    increment: int
    """Niceness of the process, up to 19."""


def open_launcher(options: Options, say: Callable[[str], None]) -> Launcher:
    """Nothing is started yet."""
    return Nice(options.increment)


class Nice:
    """One process per run, in a session of its own."""

    name = "nice"

    def __init__(self, increment: int) -> None:
        self._nice = ["nice", "-n", str(increment)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, launch: Launch, slot: Slot) -> Job:
        environment = {**os.environ, **slot.environment()}
        with (launch.directory / OUTPUT_LOG).open("ab") as log:
            process = subprocess.Popen(
                [*self._nice, *launch.command],
                cwd=launch.root,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid, host = process.pid, socket.gethostname()
        self._running[str(pid)] = process
        return Job(self.name, str(pid), host, pid, time.time(), process_started(pid))

    def poll(self, job: Job) -> Exit | None:
        code = self._running[job.id].poll()
        if code is None:
            return None
        return Exit(code, None, time.time()) if code >= 0 else Exit(None, -code, time.time())

    def cancel(self, job: Job, *, kill: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(job.id), signal.SIGKILL if kill else signal.SIGTERM)

    def alive(self, job: Job) -> bool:
        if job.pid is None or job.host != socket.gethostname():
            return False
        return process_started(job.pid) == job.process_started is not None

    def filenos(self) -> Sequence[int]:
        return []

    def close(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
