"""How busy a machine was with other work than ours: its CPU time, less that of one tree of processes.

    work = MachineWork(os.getpid())
    before = work.read()
    ...
    share = other_work(before, work.read())

Counted are the processors that this process may use, as /proc/stat counts them (time that a hypervisor gave
to others included), and of the tree everything that was started from its root, also what has ended since or
has outlived its parent. A reading takes some milliseconds, for it looks at every process of the
machine, so take one when something starts and when it ends. Linux only; elsewhere there are no readings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from monitoring.host.process import stat_fields
from monitoring.host.small_file import text_of

# A shorter time says little: most kernels look what a processor does about a hundred times per second.
FEWEST_SECONDS = 1.0

# Seconds between looks; more on a machine of so many processes that a look takes over a 2,000th of that: 6 ms
# for 125 processes of which nothing is in the caches.
LOOK_EVERY = 1.0
MOST_EFFORT = 2000

_SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user.
_COLUMNS, _IDLE = 8, (3, 4)


@dataclass(frozen=True)
class WorkReading:
    """Sums since some moment, in CPU seconds but for `clock`."""

    clock: float
    """Seconds of the monotonic clock."""
    processors: int
    total: float
    """CPU seconds of the processors, idle or not."""
    busy: float
    own: float
    """CPU seconds of the tree."""


class _OtherProcess(NamedTuple):
    """A process at one look; times are in ticks."""

    started: int
    parent: int
    own: int
    collected: int
    """Ticks of the children that it has waited for, and of theirs."""
    resident: int
    """Pages of memory, those that it shares with others included."""


class MachineWork:
    """Reads the machine's work and that of a tree; one thread calls it."""

    def __init__(
        self,
        root_pid: int | None,
        *,
        processors: Iterable[int] | None = None,
        left_out: Iterable[int] = (),
        root: Path = Path("/"),
    ) -> None:
        """The tree of `root_pid`, or of what `add_root` adds; `root` has `proc`.

        `processors` are by default those of our affinity. What processes `left_out` do does not count.
        """
        self._left_out: Mapping[int, bool] = dict.fromkeys(left_out, False)
        self._roots: dict[int, int | None] = {} if root_pid is None else {root_pid: None}
        self._processors = frozenset(_affinity() if processors is None else processors)
        self._proc = root / "proc"
        self._tree: dict[int, _OtherProcess] = {}
        self._own = 0
        self._last: WorkReading | None = None
        self._next_look = 0.0

    def add_root(self, pid: int, started: float) -> None:
        """Count another process, by its id and `process_started`, and what it has started."""
        self._roots[pid] = int(started)

    @property
    def num_roots(self) -> int:
        return len(self._roots)

    @property
    def pids(self) -> Sequence[int]:
        """The processes of the tree at the last reading."""
        return list(self._tree)

    @property
    def resident_bytes(self) -> int:
        """Return the resident memory of these processes; shared pages count for each."""
        return sum(process.resident for process in self._tree.values()) * _PAGE

    def look(self) -> None:
        """Note processes that may be gone at the next reading; does nothing a moment after the last look."""
        if time.monotonic() >= self._next_look:
            self.read()

    def read(self, *, newest: float = 0.0) -> WorkReading | None:
        """Return a reading, None where the system has none; one of at most `newest` seconds ago will do."""
        begun = time.monotonic()
        if self._last is None or begun - self._last.clock > newest:
            self._last = self._read()
            self._next_look = begun + max(LOOK_EVERY, MOST_EFFORT * (time.monotonic() - begun))
        return self._last

    def _read(self) -> WorkReading | None:
        try:
            processes = self._processes()
            total, busy = self._machine()
        except (OSError, ValueError, LookupError):
            return None
        self._count(processes)
        return WorkReading(
            time.monotonic(),
            len(self._processors),
            total * _SECONDS_PER_TICK,
            busy * _SECONDS_PER_TICK,
            self._own * _SECONDS_PER_TICK,
        )

    def _machine(self) -> tuple[int, int]:
        """Ticks of our processors, and of these the busy ones; KeyError if one is not listed."""
        ticks = processor_ticks(self._proc / "stat")
        own = [ticks[number] for number in self._processors]
        total = sum(every for every, _ in own)
        if not total:
            raise ValueError("no processor has worked")
        return total, sum(busy for _, busy in own)

    def _processes(self) -> dict[int, _OtherProcess]:
        found, folder = {}, str(self._proc)
        for name in os.listdir(folder):
            if name.isdigit():
                try:
                    fields = stat_fields(f"{folder}/{name}")
                except OSError:  # it has just ended
                    continue
                # proc_pid_stat(5) counts from 1, and these follow two: ppid 4, utime 14, stime 15, cutime 16,
                # cstime 17, starttime 22, rss 24
                found[int(name)] = _OtherProcess(
                    started=int(fields[19]),
                    parent=int(fields[1]),
                    own=int(fields[11]) + int(fields[12]),
                    collected=int(fields[13]) + int(fields[14]),
                    resident=int(fields[21]),
                )
        return found

    def _count(self, processes: Mapping[int, _OtherProcess]) -> None:
        """Add what the tree did since the last look: each time once, also one that a parent has collected."""
        before, self._tree = self._tree, self._members(processes)
        gone: dict[int, int] = {}
        for pid, old in before.items():
            if not _is_same(self._tree.get(pid), old):
                # an ancestor that waited for it has its time in `collected`, which was counted here already
                heir = _heir(old, before, self._tree)
                gone[heir] = gone.get(heir, 0) + old.own + old.collected
        for pid, now in self._tree.items():
            earlier = before.get(pid)
            if earlier is None or not _is_same(now, earlier):
                self._own += now.own + now.collected
            else:
                # The time that it has collected was counted as its child's, up to the last look.
                self._own += now.own - earlier.own
                self._own += max(0, now.collected - earlier.collected - gone.get(pid, 0))

    def _members(self, processes: Mapping[int, _OtherProcess]) -> dict[int, _OtherProcess]:
        """Return the root, what was of the tree before, and all that they started."""
        known: dict[int, bool] = {
            pid: True for pid, old in self._tree.items() if _is_same(processes.get(pid), old)
        }
        # who adopts orphans is of no tree
        known |= {0: False, 1: False}
        for pid, started in self._roots.items():
            known[pid] = started is None or pid not in processes or processes[pid].started == started
        known |= self._left_out
        for pid in processes:
            # up to a process of which it is known: what is on the way is of the same tree
            path = []
            while pid in processes and pid not in known:
                known[pid] = False
                path.append(pid)
                pid = processes[pid].parent
            known.update(dict.fromkeys(path, known.get(pid, False)))
        return {pid: process for pid, process in processes.items() if known[pid]}


def other_work(before: WorkReading | None, after: WorkReading | None) -> float | None:
    """Return the share of the processors' time, from 0 to 1, that others than the tree kept busy.

    None where it was not measured, or for less than FEWEST_SECONDS of all processors together.
    """
    if before is None or after is None or before.processors != after.processors:
        return None
    passed = (after.clock - before.clock) * after.processors
    total = after.total - before.total
    # Where the clock of the processors stands still, the system only pretends to have one.
    if total < FEWEST_SECONDS or total < passed / 2:
        return None
    others = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, others / total))


def processor_ticks(stat: Path) -> dict[int, tuple[int, int]]:
    """Processor -> its ticks in /proc/stat since the boot, and of these the busy ones."""
    found = {}
    for line in text_of(stat).splitlines():
        name, *numbers = line.split()
        if not name.startswith("cpu"):
            break
        if name[3:].isdecimal():
            ticks = [int(number) for number in numbers[:_COLUMNS]]
            found[int(name[3:])] = sum(ticks), sum(ticks) - sum(ticks[column] for column in _IDLE)
    return found


def _heir(gone: _OtherProcess, before: Mapping[int, _OtherProcess], now: Mapping[int, _OtherProcess]) -> int:
    """Return the nearest ancestor that is still there, who may have collected its time; 0 for none."""
    pid = gone.parent
    while pid in before:
        if _is_same(now.get(pid), before[pid]):
            return pid
        pid = before[pid].parent
    return 0


def _is_same(one: _OtherProcess | None, other: _OtherProcess) -> bool:
    """Whether two looks at a process id met the same process."""
    return one is not None and one.started == other.started


def _affinity() -> Iterable[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
