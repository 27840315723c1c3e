"""The local launcher for a single run whose bridge was forked beforehand."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kharness.matrix.commands.early import EarlyBridge
from kharness.matrix.launchers._processes import FreshProcesses, exit_of
from kharness.matrix.launchers.local import Local, Options
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Exit, Launch, Slot
from monitoring.host.process import process_started


class LocalForked(Local):
    """Its one process is there already."""

    def __init__(self, bridge: EarlyBridge) -> None:
        super().__init__(Options(fork_server=False), lambda _: None)
        self._fresh = _EarlyBridges(bridge)


class _EarlyBridges(FreshProcesses):
    """The child that waits for its run."""

    def __init__(self, bridge: EarlyBridge) -> None:
        super().__init__()
        self._bridge = bridge
        self._is_collected = False

    def start(self, launch: Launch, slot: Slot, environment: Mapping[str, str]) -> tuple[int, float | None]:
        log = launch.directory / OUTPUT_LOG
        # the words after `-m monitoring.bridge`
        self._bridge.begin(launch.program[2:], cwd=launch.root, log=log, environment=environment)
        return self._bridge.pid, process_started(self._bridge.pid)

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
