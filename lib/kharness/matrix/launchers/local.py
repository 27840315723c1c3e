"""Runs as processes on this machine: forked from one that has imported torch, or fresh ones.

Each has a session of its own, so a Ctrl-C in the terminal reaches it only through `cancel`. On Linux the
kernel kills it when this process dies, however that happens.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.matrix.launchers._forking import Forking
from kharness.matrix.launchers._processes import FreshProcesses, Holder
from kharness.runs.exit_codes import OUT_OF_MEMORY
from kharness.runs.launch import Exit, Job, Launch, Launcher, Slot
from monitoring.host.cgroup import CgroupLimits
from monitoring.host.name import host_name
from monitoring.host.process import process_started


@dataclass(frozen=True)
class Options:
    """How local runs start."""

    fork_server: bool
    """Fork them from a process that has imported torch, where that is safe."""


def open_launcher(options: Options, say: Callable[[str], None]) -> Launcher:
    return Local(options, say)


class Local:
    """One process per run."""

    name = "local"

    def __init__(
        self,
        options: Options,
        say: Callable[[str], None],
        *,
        oom_kills: OomKills | None = None,
        fresh: FreshProcesses | None = None,
    ) -> None:
        """`fresh` starts what is not forked."""
        self._host = host_name()
        self._forking = Forking(say, enabled=options.fork_server, fresh=fresh)
        self._oom_kills = oom_kills or OomKills()
        self._oom_kills_before: dict[str, int | None] = {}
        self._killed: set[str] = set()

    def is_ready(self, launch: Launch) -> bool:
        """Whether `submit` would not wait; a runner that asks first stays ready for Ctrl-C."""
        return self._forking.is_ready(launch)

    def submit(self, launch: Launch, slot: Slot) -> Job:
        before = self._oom_kills.count()
        pid, started = self._forking.start(launch, slot)
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
        return self._forking.filenos()

    def close(self) -> None:
        self._forking.close()

    def _holder(self, job: Job) -> tuple[Holder, int]:
        pid = int(job.id)
        return self._forking.holder(pid), pid


class OomKills:
    """Tells a process that the kernel killed for want of memory: it ends with SIGKILL like any other."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` replaces the machine's root directory."""
        self._limits = CgroupLimits(root)

    def count(self) -> int | None:
        """Kills since the cgroup was made or the machine started; None where the system does not say."""
        counted = self._limits.oom_kills()
        return counted[1] if counted else None

    def reason_since(self, before: int | None) -> str:
        """Return an explanation of a SIGKILL from elsewhere; empty if no kill was counted since `before`."""
        counted = self._limits.oom_kills()
        if counted is None or before is None or counted[1] <= before:
            return ""
        counter, now = counted
        return f"killed by the kernel for want of memory (oom_kill in {counter} rose to {now})"
