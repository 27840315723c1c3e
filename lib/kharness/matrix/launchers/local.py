"""Runs as processes on this machine: forked from one that has imported torch, or fresh ones.

Each has a session of its own, so a Ctrl-C in the terminal reaches it only through `cancel`. On Linux the
kernel kills it when this process dies, however that happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kharness.matrix.launchers._oom_kills import OomKills
from kharness.matrix.launchers._processes import FreshProcesses
from kharness.matrix.launchers._zygote import Zygote, ZygoteLost, ZygoteUnsafe
from kharness.runs.exit_codes import OUT_OF_MEMORY
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot
from monitoring.agent.starter import AgentStarter
from monitoring.host.process import process_started

# Make's own, and the word that make variables were given: a cell has them in its .config already.
NOT_FOR_RUNS = (
    *("KHARNESS_GOALS", "KHARNESS_MAKE_VARS"),
    *("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"),
)

# torch then asks for pages of 2 MB for large tensors, of which a short run would else touch thousands of 4 KB
# for the first time: a sixth of its CPU time.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}

# A zygote that is lost is replaced; one that is lost this often is better done without.
MOST_LOSSES = 3


@dataclass(frozen=True)
class Options:
    """How local runs start."""

    zygote: bool = False
    """Fork them from a process that has imported torch, where that is safe."""


def open_launcher(options: Options, say: Callable[[str], None]) -> Launcher:
    return Local(options, say)


class Local:
    """One process a run."""

    name = "local"

    def __init__(
        self, options: Options, say: Callable[[str], None], *, oom_kills: OomKills | None = None
    ) -> None:
        self._say = say
        self._host = socket.gethostname()
        self._fresh = FreshProcesses()
        self._zygotes: list[Zygote] = []
        """The last one forks; earlier ones have been lost and may have children whose end is not told yet."""
        self._fork = options.zygote
        self._agents: AgentStarter | None = None
        self._oom_kills = oom_kills or OomKills()
        self._oom_kills_before: dict[str, int | None] = {}
        self._killed: set[str] = set()
        if self._fork:
            self._new_zygote()
            self._start_agent_starter()

    def submit(self, launch: Launch, slot: Slot) -> Job:
        before = self._oom_kills.count()
        environment = {**environment_of_runs(slot), **(self._agents.environment if self._agents else {})}
        pid, started = self._forked(launch, slot, environment) or self._fresh.start(launch, slot, environment)
        self._oom_kills_before[str(pid)] = before
        return Job(
            launcher=self.name,
            id=str(pid),
            host=self._host,
            pid=pid,
            started=time.time(),
            process_started=started,
        )

    def poll(self, job: Job) -> Exit | None:
        holder, pid = self._holder(job)
        found = holder.poll(pid)
        if found is None:
            return None
        before = self._oom_kills_before.pop(job.id)
        if found.signal == signal.SIGKILL and job.id not in self._killed:
            reason = self._oom_kills.reason_since(before)
            if reason:
                found = replace(found, cause=OUT_OF_MEMORY, reason=reason)
        self._killed.discard(job.id)
        return found

    def cancel(self, job: Job, *, kill: bool) -> None:
        holder, pid = self._holder(job)
        if kill:
            self._killed.add(job.id)
            holder.kill(pid)
        else:
            holder.signal(pid, signal.SIGTERM)

    def alive(self, job: Job) -> bool:
        if job.pid is None or job.host != self._host:
            return False
        return process_started(job.pid) == job.process_started is not None

    def filenos(self) -> Sequence[int]:
        """A fresh process's end is told by SIGCHLD instead."""
        return [fd for zygote in self._zygotes if (fd := zygote.fileno()) is not None]

    def close(self) -> None:
        for zygote in self._zygotes:
            zygote.close()
        self._zygotes.clear()
        self._fresh.close()
        if self._agents is not None:  # the last, so that every run could ask it
            self._agents.close()

    def _holder(self, job: Job) -> tuple[Zygote | FreshProcesses, int]:
        pid = int(job.id)
        return next((zygote for zygote in self._zygotes if zygote.holds(pid)), self._fresh), pid

    def _forked(
        self, launch: Launch, slot: Slot, environment: dict[str, str]
    ) -> tuple[int, float | None] | None:
        """A child of the zygote; None where a fresh process is to be started."""
        while self._fork:
            try:
                return self._zygotes[-1].fork(launch, slot, environment)
            except ZygoteUnsafe as error:
                self._stop_forking(str(error))
                if not self._zygotes[-1].has_children:
                    self._zygotes.pop().close()
            except ZygoteLost as error:
                if len(self._zygotes) >= MOST_LOSSES or not self._zygotes[-1].was_ready:
                    self._stop_forking(str(error))
                else:
                    self._say(f"note: {error}; starting another")
                    self._new_zygote()
        return None

    def _new_zygote(self) -> None:
        try:
            self._zygotes.append(Zygote(environment_of_runs(Slot())))
        except ZygoteUnsafe as error:
            self._stop_forking(str(error))
        except OSError as error:
            self._stop_forking((error.strerror or str(error)).lower())

    def _start_agent_starter(self) -> None:
        """Agents are forked as well. Without it each run starts its own, so that nobody need be told."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._agents = AgentStarter(environment_of_runs(Slot()))

    def _stop_forking(self, reason: str) -> None:
        self._fork = False
        self._say(f"note: runs start as fresh processes, which takes longer: {reason}")


def environment_of_runs(slot: Slot) -> dict[str, str]:
    """The environment of this process as a run gets it."""
    ours = {name: value for name, value in os.environ.items() if name not in NOT_FOR_RUNS}
    return {**HUGE_PAGES, **ours, "PYTHONUNBUFFERED": "1", **slot.environment()}
