"""The local launcher of a single run whose bridge was forked beforehand, and has begun it."""

from __future__ import annotations

import os
import time

from kharness.matrix.commands.early import EarlyBridge
from kharness.matrix.launchers._processes import FreshProcesses, exit_of
from kharness.matrix.launchers.local import Local, Options
from kharness.runs.launch import Exit


class LocalForked(Local):
    """Its one process is there already."""

    def __init__(self, bridge: EarlyBridge) -> None:
        super().__init__(Options(fork_server=False), lambda _: None, fresh=_EarlyBridges(bridge))
        self._oom_kills_before[str(bridge.pid)] = self._oom_kills.count()


class _EarlyBridges(FreshProcesses):
    """The child that runs its program."""

    def __init__(self, bridge: EarlyBridge) -> None:
        super().__init__()
        self._bridge = bridge
        self._is_collected = False

    def poll(self, pid: int) -> Exit | None:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill(pid)
        self._is_collected = True
        return exit_of(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.time())

    def close(self) -> None:
        if not self._is_collected:
            self.kill(self._bridge.pid)
            os.waitpid(self._bridge.pid, 0)
