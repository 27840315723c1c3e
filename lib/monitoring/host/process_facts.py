"""Facts about processes, anybody's: their user, CPU use, age, memory and command line.

From /proc (proc(5)), which shows these of other users too, unless it is mounted with hidepid. Without /proc
nothing is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Fields of /proc/PID/stat after the name: state, times in ticks, the start in ticks, pages.
STATE, USER, SYSTEM, STARTED, PAGES = 0, 11, 12, 19, 21

# Bytes of a command line that are kept.
COMMAND_BYTES = 4096

# Share of the time that goes into looking at most.
EFFORT = 0.01

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessFacts:
    """Facts of one process; None for what cannot be read."""

    pid: int
    started: float
    """Start as by host.process.process_started: with the pid it names one process."""
    user: str | None
    cpu_percent: float | None
    """Percent of one processor since the look before; None at the first."""
    seconds: float
    """Seconds since it was started."""
    memory_mb: float
    """Resident memory in MiB."""
    command: str | None
    """The command line with its arguments, the name in brackets of one that has none."""


class ProcessLooks:
    """Repeated looks at processes; one thread calls it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` has `proc`."""
        self._proc = root / "proc"
        self._before: dict[int, tuple[float, float, float]] = {}  # pid -> its start, CPU seconds, the time
        self._commands: dict[tuple[int, float], str | None] = {}
        self.facts: dict[int, ProcessFacts] = {}
        """Facts of the last look, about those processes that are there."""
        self._due = 0.0

    def look(self, pids: Iterable[int]) -> None:
        """Bring `facts` up to date, less often where that takes long; new processes are looked at at once."""
        pids = set(pids)
        began = time.monotonic()
        if began < self._due and pids <= self._before.keys():
            return
        self.facts = {pid: facts for pid in pids if (facts := self._of(pid)) is not None}
        alive = {(facts.pid, facts.started) for facts in self.facts.values()}
        self._commands = {key: command for key, command in self._commands.items() if key in alive}
        self._before = {pid: self._before.get(pid, (0.0, 0.0, 0.0)) for pid in pids}
        now = time.monotonic()
        # a look of 10 ms is followed by a second without one
        self._due = now + (now - began) / EFFORT

    def _of(self, pid: int) -> ProcessFacts | None:
        folder = self._proc / str(pid)
        try:
            text = (folder / "stat").read_text(errors="replace")
            owner = os.stat(folder).st_uid
            uptime = float((self._proc / "uptime").read_text().split()[0])
        except OSError:
            return None
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        started, used = float(fields[STARTED]), (int(fields[USER]) + int(fields[SYSTEM])) / _TICKS
        now = time.monotonic()
        start, before, then = self._before.get(pid, (0.0, 0.0, 0.0))
        is_known = start == started and then > 0 and now > then
        percent = 100 * (used - before) / (now - then) if is_known else None
        self._before[pid] = started, used, now
        if (pid, started) not in self._commands:
            self._commands[pid, started] = _command(folder, name)
        return ProcessFacts(
            pid,
            started,
            user_name(owner),
            percent,
            max(0.0, uptime - started / _TICKS),
            int(fields[PAGES]) * _PAGE / 2**20,
            self._commands[pid, started],
        )


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the user's name, or the number if it has none here."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(folder: Path, name: str) -> str | None:
    try:
        with (folder / "cmdline").open("rb") as file:
            words = file.read(COMMAND_BYTES).rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    line = b" ".join(words).decode(errors="replace").strip()
    return line or f"[{name}]"
