"""The run's agent as its trainer sees it: a process to start, and to start again when it is gone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

AGENT_LOG = "agent.log"

# Seconds before an agent that died is started again: doubled each time, and back to the first for one
# that lived a steady minute.
FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
STEADY_SECONDS = 60.0


class AgentProcess:
    """`python -m monitoring.agent DIRECTORY`, in a session of its own.

    So Ctrl-C and the end of the trainer pass it by. Started by posix_spawn: no thread, and no copy of
    the trainer's memory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pid: int | None = None
        self._delay = FIRST_DELAY
        self._started = 0.0
        self._not_before = 0.0

    def start(self) -> None:
        """Start the agent; OSError if the system does not let it."""
        log = os.open(self._directory / AGENT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._started = time.monotonic()
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "monitoring.agent", str(self._directory)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigmask=(),
            )
        finally:
            os.close(log)

    def keep_alive(self, *, at_once: bool = False) -> None:
        """Start the agent again if it is gone, after the delays above unless `at_once`; never raises."""
        if self._pid is not None and self._is_running(self._pid):
            return
        now = time.monotonic()
        if self._pid is not None:
            self._pid = None
            self._delay = FIRST_DELAY if now - self._started > STEADY_SECONDS else self._delay
            self._not_before = now + self._delay
            self._delay = min(2 * self._delay, LONGEST_DELAY)
        if at_once or now >= self._not_before:
            try:
                self.start()
            except OSError:  # out of processes, memory or disk: the next look tries again
                self._not_before = now + self._delay

    @staticmethod
    def _is_running(pid: int) -> bool:
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == 0
        except ChildProcessError:  # somebody else has collected it
            return False
