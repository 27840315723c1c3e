"""Fresh processes: the interpreter started on the training's script, once per run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kharness.runs.errors import MatrixError
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Exit, Launch, Slot
from monitoring.errors import refusal
from monitoring.host import libc
from monitoring.host.process import process_started


class Holder(Protocol):
    """Whose children runs are."""

    def poll(self, pid: int) -> Exit | None: ...

    def signal(self, pid: int, number: int) -> None: ...

    def kill(self, pid: int) -> None: ...


class FreshProcesses:
    """One process per run, a child of this one."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, launch: Launch, slot: Slot, environment: Mapping[str, str]) -> tuple[int, float | None]:
        """Process id and start, as the system counts it; MatrixError if it cannot be started."""
        try:
            with (launch.directory / OUTPUT_LOG).open("ab") as log:
                process = subprocess.Popen(
                    launch.command,
                    cwd=launch.root,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=before_exec(slot.cores),
                )
        except OSError as error:
            reason = refusal(error)
            raise MatrixError(f"{launch.name} cannot be started: {reason}") from error
        except subprocess.SubprocessError as error:
            raise MatrixError(
                f"{launch.name} cannot be started on cores {', '.join(map(str, slot.cores))}"
            ) from error
        self._processes[process.pid] = process
        return process.pid, process_started(process.pid)

    def holds(self, pid: int) -> bool:
        return pid in self._processes

    def poll(self, pid: int) -> Exit | None:
        # Looked at without collecting it: until then nobody else can get its id, so its group is surely ours.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill(pid)
        returned = self._processes.pop(pid).wait()
        return exit_of(returned, time.time())

    def signal(self, pid: int, number: int) -> None:
        os.kill(pid, number)

    def kill(self, pid: int) -> None:
        # PermissionError: on macOS, a group in which nothing is left but a process to be collected.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        for pid, process in self._processes.items():
            self.kill(pid)
            process.wait()
        self._processes.clear()


def exit_of(code: int, ended: float) -> Exit:
    """Make one from an exit code that is negative for a signal."""
    return Exit(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None, ended=ended)


def before_exec(cores: Sequence[int] = ()) -> Callable[[], None]:
    """Return the function that a child runs between fork and exec; only system calls, since little else is
    safe there.
    """
    end_with_parent = libc.ending_with(os.getpid())

    def prepare() -> None:
        # nohup and background jobs make it ignored, and an ignored signal stays so over exec.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        end_with_parent()

    return prepare
