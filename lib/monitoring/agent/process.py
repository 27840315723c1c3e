"""Starts a run's agent from the trainer, and starts it again when it is gone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.errors import refusal
from monitoring.host import file_locks
from monitoring.host.backoff import STEADY_SECONDS, Backoff
from monitoring.host.process import process_started, reaped, spawned
from monitoring.journal.files import AGENT_LOG
from monitoring.journal.journal import say

if TYPE_CHECKING:  # most runs start their agents themselves
    import socket

# Names the process that forks agents for this one, if there is one (see agent_starter).
STARTER = "MONITORING_AGENT_STARTER"

# linux/socket.h: struct ucred is pid, uid, gid.
UCRED = "iII"

# Seconds that a run which ends waits for the starter's answer.
LONGEST_ANSWER = 5.0

# With an arena for each thread glibc reserves 64 MiB of addresses a thread, which `ulimit -v` counts: an
# agent of three trackers took 890 MB of them, and takes 320 with two arenas, in as much memory as before.
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}

ORDERLY = (0, 2, 3)
"""Exit codes of agents that say themselves what was wrong, if anything was."""

_SIGNALS = frozenset(number.value for number in signal.Signals)


class AgentProcess:
    """`python -m monitoring.agent DIRECTORY …`, in a session of its own.

    So Ctrl-C and the end of the trainer pass it by. The first one is forked by the starter, where there is
    one; whatever goes wrong with that, the next is a process of our own.
    """

    def __init__(self, directory: Path, *arguments: str, log: str = AGENT_LOG) -> None:
        """`arguments` follow the directory in its command, `log` is the file that takes what it prints."""
        self._directory = directory
        self._arguments, self._log = arguments, log
        self._starter = os.environ.get(STARTER)
        self._process: _Spawned | _Forked | None = None
        self._died = ""
        self._backoff = Backoff()
        self._started = 0.0
        self._not_before = 0.0
        self._deaths = 0
        self._told: set[str] = set()

    def _start(self) -> None:
        """Start the agent; OSError if the system does not let it."""
        self._started = time.monotonic()
        starter, self._starter = self._starter, None
        if starter:
            with contextlib.suppress(OSError):  # it is gone, or busy, or the environment is too large for it
                self._process = _Forked(self._directory, self._arguments, self._log, starter)
                return
        after = ("--after", self._died) if self._died else ()
        self._process = _Spawned(self._directory, (*self._arguments, *after), self._log)
        self._died = ""

    def keep_alive(self, *, at_once: bool = False) -> None:
        """Start the agent if there is none, after a delay unless `at_once`; never raises.

        The next agent tells of one that died; of several in a row, which may have come to no word, this does.
        """
        if self._process is not None and self._process.is_running(wait=LONGEST_ANSWER if at_once else 0.0):
            return
        now = time.monotonic()
        if self._process is not None:
            self._died, self._process = self._process.died, None
            lived = now - self._started
            self._not_before = now + self._backoff.failed(lived=lived)
            self._deaths = self._deaths + 1 if self._died and lived < STEADY_SECONDS else 0
            if self._deaths > 1:
                self._tell(f"its agent dies again and again: {self._died}; {self._log} has its last words")
        if at_once or now >= self._not_before:
            try:
                self._start()
            except OSError as error:  # out of processes, memory or disk: the next look tries again
                self._not_before = now + self._backoff.coming
                why = refusal(error)
                self._tell(f"its agent cannot be started: {why}; it is tried again, or run `make sync` later")

    def _tell(self, what: str) -> None:
        """Say it on the training's standard error, each thing once."""
        if what not in self._told:
            self._told.add(what)
            say(f"warning: {self._directory}: {what}")


def open_log(directory: Path, name: str) -> int:
    """Open the file that the agent's output is appended to.

    It is locked until the agent that inherits it has the agent's own lock, or is gone: so that others see
    that one is coming (monitoring.agent.lock).
    """
    log = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with contextlib.suppress(OSError):  # a file system without locks
        file_locks.try_lock(log)
    return log


class _Spawned:
    """A child of this process; started by posix_spawn: no thread, and no copy of the trainer's memory."""

    def __init__(self, directory: Path, arguments: Sequence[str], log_name: str) -> None:
        self.died = ""
        """How it ended, in words, if that is known and was not in good order; the next agent reports it."""
        log = open_log(directory, log_name)
        try:
            self._pid = spawned(
                ["monitoring.agent", str(directory), *arguments],
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                environment=FEW_ARENAS | os.environ,
            )
        finally:
            os.close(log)

    def is_running(self, *, wait: float) -> bool:
        """Whether it lives, which may take `wait` seconds to be found out."""
        try:
            code = reaped(self._pid, wait=wait)
        except ChildProcessError:  # by other code of this process
            return False
        if code is not None:
            self.died = how_died(code)
        return code is None


class _Forked:
    """A child of the starter, which is requested without waiting for the answer."""

    def __init__(self, directory: Path, arguments: Sequence[str], log_name: str, starter: str) -> None:
        import json
        import socket

        self.died = ""
        self._pid = 0
        self._started: float | None = None
        self._asked: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._asked.setblocking(False)
            self._asked.connect(f"\0{starter}")
            if peer_user(self._asked) != os.getuid():
                raise PermissionError("another user has taken the name of the starter")
            request = {
                "directory": str(directory),
                "arguments": list(arguments),
                "cwd": os.getcwd(),
                "environment": {name: value for name, value in os.environ.items() if name != STARTER},
                "cores": sorted(os.sched_getaffinity(0)),
            }
            log = open_log(directory, log_name)
            try:
                socket.send_fds(self._asked, [json.dumps(request).encode()], [log])
            finally:
                os.close(log)
        except BaseException:
            self._asked.close()
            raise

    def is_running(self, *, wait: float) -> bool:
        if self._asked is not None:
            answer = select.poll()  # select() refuses the thousandth open file of a process
            answer.register(self._asked, select.POLLIN)
            answered = bool(answer.poll(1000 * wait))
            if not answered and not wait:
                return True  # as far as is known
            with self._asked as asked:
                if answered:
                    self._take_answer(asked)
            self._asked = None
        return self._started is not None and process_started(self._pid) == self._started

    def _take_answer(self, asked: socket.socket) -> None:
        """Read pid and start time from the starter's answer; an empty one means that it could not fork."""
        import json

        with contextlib.suppress(OSError):
            answer = asked.recv(4096)
            if answer:
                told = json.loads(answer)
                self._pid, self._started = told["pid"], told["started"]


def how_died(code: int) -> str:
    """Describe an exit code, negative for a signal; empty for those of an orderly end."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" if -code in _SIGNALS else f"killed by signal {-code}"
    return f"exit code {code}" if code not in ORDERLY else ""


def peer_user(connection: socket.socket) -> int:
    """Return the user whose process is at the other end of a local socket."""
    import socket
    import struct

    ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(UCRED))
    user: int = struct.unpack(UCRED, ucred)[1]
    return user
