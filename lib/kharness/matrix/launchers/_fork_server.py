"""The launcher's end of `kharness.training.forkserver.server`, the process that runs are forked from."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from kharness.matrix.launchers._processes import before_exec, exit_of
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import RUNNER_DIED
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Exit, Launch, Slot
from monitoring.host.process import process_started

# These say where libgomp's threads go; it reads them, and the cores there are, only when it is loaded.
THREAD_PLACES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")

# Seconds that a fork server which is to end may take for it, and for its imports or a fork.
PATIENCE = 10.0
LONGEST_WAIT = 300.0


class ForkUnsafe(Exception):
    """Runs cannot be forked here; the message says why."""


class ForkServerLost(Exception):
    """The fork server has died, and its children with it."""


class ForkServerClient:
    """One such process, started at once; it imports while the caller does something else."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is that of the runs: libraries read some of it when they are loaded."""
        if sys.platform != "linux":
            raise ForkUnsafe("forking after an import of torch is safe on Linux only")
        placed = [name for name in THREAD_PLACES if environment.get(name)]
        if placed:
            raise ForkUnsafe(f"{placed[0]} is set, which only a fresh process reads")
        self._received = b""
        self._begun = time.monotonic()
        self._started: dict[int, float | None] = {}
        self._ends: dict[int, Exit] = {}
        self.was_ready = False
        """Whether it has done its imports."""
        self.why_lost = ""
        """Empty while it lives."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kharness.training.forkserver.server", str(theirs.fileno())],
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=before_exec(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, launch: Launch, slot: Slot, environment: Mapping[str, str]) -> tuple[int, float | None]:
        """Process id and start of a new child, as the system counts it; waits until the imports are done.

        MatrixError if the system refuses, ForkUnsafe and ForkServerLost if it takes another way to start it.
        """
        if not self.was_ready:
            self.was_ready = "ready" in self._reply()
        run = {
            "program": launch.program,
            "directory": str(launch.root),
            "log": os.path.abspath(launch.directory / OUTPUT_LOG),
            "environment": dict(environment),
            "cores": list(slot.cores),
            "threads": slot.num_threads,
        }
        self._send({"fork": run})
        reply = self._reply()
        if "refused" in reply:
            raise MatrixError(f"{launch.name} cannot be started: {reply['refused']}")
        pid: int = reply["forked"]
        self._started[pid] = reply["started"]
        return pid, reply["started"]

    def is_ready(self) -> bool:
        """Whether `fork` would not wait: it has imported, is gone, or had LONGEST_WAIT for its imports."""
        if self.was_ready or select.select([self._channel], [], [], 0)[0]:
            return True
        return self.seconds > LONGEST_WAIT

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._begun

    @property
    def has_children(self) -> bool:
        return bool(self._started)

    def holds(self, pid: int) -> bool:
        return pid in self._started

    def poll(self, pid: int) -> Exit | None:
        """How a child ended; of a lost fork server's child only that it did."""
        with contextlib.suppress(ForkServerLost):
            self._drain()
        if pid in self._ends:
            del self._started[pid]
            return self._ends.pop(pid)
        if self.why_lost and not self._finish_off(pid):
            del self._started[pid]
            return Exit(None, None, time.time(), cause=RUNNER_DIED, reason=self.why_lost)
        return None

    def signal(self, pid: int, number: int) -> None:
        """Through the fork server, which knows whether the id is still the child's."""
        with contextlib.suppress(ForkServerLost):
            self._send({"signal": pid, "number": number})

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ForkServerLost):
            self._send({"kill": pid})

    def fileno(self) -> int | None:
        """Readable when a child has ended; None when it is lost."""
        return None if self.why_lost else self._channel.fileno()

    def close(self) -> None:
        """End it and all its children."""
        if not self.was_ready:  # it would end its imports first
            self._process.kill()
        self._channel.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in self._started:
            self._finish_off(pid)
        self._started.clear()
        self._errors.close()

    def _send(self, message: Mapping[str, object]) -> None:
        if self.why_lost:
            raise ForkServerLost(self.why_lost)
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._lose()

    def _reply(self) -> dict[str, Any]:
        """The next message that is no child's end."""
        while True:
            reply = self._drain()
            if reply and "unsafe" in reply:
                raise ForkUnsafe(reply["unsafe"])
            if reply:
                return reply
            # killed, its end is the next thing that is read, and says how it ended
            if not select.select([self._channel], [], [], LONGEST_WAIT)[0]:
                self._process.kill()

    def _drain(self) -> dict[str, Any] | None:
        """Read what has come, and keep the ends of children; returns a reply if there is one."""
        if self.why_lost:
            raise ForkServerLost(self.why_lost)
        reply = None
        while select.select([self._channel], [], [], 0)[0]:
            try:
                received = self._channel.recv(1 << 20)
            except OSError:
                received = b""
            if not received:
                self._lose()
            *lines, self._received = (self._received + received).split(b"\n")
            for message in map(json.loads, lines):
                if "ended" in message:
                    code = os.waitstatus_to_exitcode(message["status"])
                    self._ends[message["ended"]] = exit_of(code, message["time"])
                else:
                    reply = message
        return reply

    def _lose(self) -> None:
        """It is gone: find out how, and say so."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.why_lost = ": ".join([f"the process that runs are forked from ended with {how}", *last])
        raise ForkServerLost(self.why_lost)

    def _finish_off(self, pid: int) -> bool:
        """Kill what is left of an orphan and its group; whether the orphan itself still lives.

        The kernel has sent it SIGKILL already. Its id names its group as long as a member of that lives, so
        unless another process carries the id the group is the one that was meant.
        """
        now = process_started(pid)
        if now is None or now == self._started[pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        return now is not None and now == self._started[pid]
