"""Engine time of GPUs by their clients, from the kernel's /proc/PID/fdinfo of each open card.

docs.kernel.org/gpu/drm-usage-stats.html describes the format. Only processes that this user may look into
are seen, and only those are counted.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

# Seconds between searches for processes that have a card open.
SEARCH_EVERY = 10.0

UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Usage(NamedTuple):
    """One client's state of a card."""

    pid: int
    pci_bus_id: str
    client: str
    busy: dict[str, int]
    """Engine -> nanoseconds, or cycles where `total` has the engine's."""
    total: dict[str, int]
    capacity: dict[str, int]
    memory_bytes: int


class Clients:
    """Who uses the cards; one for all cards, read once per sample."""

    def __init__(self, root: Path) -> None:
        self._proc = root / "proc"
        self._open: dict[tuple[int, str], int] = {}
        self._searched = float("-inf")
        self._last: dict[tuple[str, str], Usage] = {}
        self._last_time = 0.0
        self._usages: list[Usage] = []
        self._busy: dict[str, float] = {}

    def look(self) -> None:
        """Read every client again."""
        now = time.monotonic()
        if now - self._searched >= SEARCH_EVERY:
            self._searched = now
            self._search()
        self._usages = self._read()
        current = {(usage.pci_bus_id, usage.client): self._at_least_before(usage) for usage in self._usages}
        self._busy = self._percent(current, now - self._last_time) if self._last_time else {}
        self._last, self._last_time = current, now

    def utilization(self, pci_bus_id: str | None) -> float | None:
        """Percent of the time since the look before in which the card's busiest kind of engine worked.

        None if none of its clients can be seen.
        """
        return None if pci_bus_id is None else self._busy.get(pci_bus_id)

    def processes(self, pci_bus_id: str | None) -> list[dict[str, object]] | None:
        """Return the card's clients that can be seen, None without any."""
        memory: dict[int, int] = defaultdict(int)
        counted = set()
        for usage in self._usages:
            # a client shows once per descriptor, each time with all of its memory
            if usage.pci_bus_id == pci_bus_id and usage.client not in counted:
                counted.add(usage.client)
                memory[usage.pid] += usage.memory_bytes
        if not memory:
            return None
        return [
            {"pid": pid, "name": self._name(pid), "memory_mb": size / 2**20, "sm_percent": None}
            for pid, size in memory.items()
        ]

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _at_least_before(self, usage: Usage) -> Usage:
        """A driver may report less than before for a while; the kernel asks to stay with the larger value."""
        before = self._last.get((usage.pci_bus_id, usage.client))
        if before is None:
            return usage
        return usage._replace(
            busy={engine: max(busy, before.busy.get(engine, 0)) for engine, busy in usage.busy.items()}
        )

    def _percent(self, current: dict[tuple[str, str], Usage], seconds: float) -> dict[str, float]:
        """Return the busiest engine of each card whose clients were there at the last look too."""
        shares: dict[tuple[str, str], float] = defaultdict(float)
        for key, usage in current.items():
            before = self._last.get(key)
            if before is None:
                continue
            for engine, busy in usage.busy.items():
                worked = busy - before.busy.get(engine, busy)
                if engine in usage.total:
                    # Cycles of a clock whose rate changes: their share is of the cycles that have passed, not
                    # of time.
                    span = float(usage.total[engine] - before.total.get(engine, usage.total[engine]))
                else:
                    span = seconds * 1e9
                if span > 0:
                    # an engine of several units (drm-engine-capacity) is at 100 % when all of them work
                    shares[usage.pci_bus_id, engine] += worked / span / (usage.capacity.get(engine) or 1)
        found: dict[str, float] = {}
        for (card, _), share in shares.items():
            found[card] = max(found.get(card, 0.0), min(100.0, 100 * share))
        return found

    def _search(self) -> None:
        """Open the fdinfo of every descriptor of a card that is not open yet."""
        for folder in self._proc.glob("[0-9]*"):
            try:
                numbers = os.listdir(folder / "fd")
            except OSError:  # gone, or not ours
                continue
            for number in numbers:
                key = int(folder.name), number
                try:
                    if key not in self._open and os.readlink(folder / "fd" / number).startswith("/dev/dri/"):
                        self._open[key] = os.open(folder / "fdinfo" / number, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue

    def _read(self) -> list[Usage]:
        usages = []
        for key, fd in list(self._open.items()):
            try:
                # An open fdinfo is written anew by the kernel for each read from 0, so it need not be opened
                # again.
                usage = parse(key[0], os.pread(fd, 65536, 0).decode(errors="replace"))
            except OSError:  # the process has ended, or has closed it
                usage = None
            if usage is None:
                os.close(self._open.pop(key))
            else:
                usages.append(usage)
        return usages

    def _name(self, pid: int) -> str | None:
        try:
            return (self._proc / str(pid) / "comm").read_text().strip()
        except OSError:
            return None


def parse(pid: int, content: str) -> Usage | None:
    """Return a client's state from one fdinfo, None if that is of no card."""
    values = {key: value.strip() for key, _, value in (line.partition(":") for line in content.splitlines())}
    if "drm-pdev" not in values or "drm-client-id" not in values:
        return None
    busy, total, capacity, memory = {}, {}, {}, 0
    for key, value in values.items():
        number = re.match(r"\d+", value)
        if number is None:
            continue
        if key.startswith("drm-engine-capacity-"):
            capacity[key.removeprefix("drm-engine-capacity-")] = int(number[0])
        elif key.startswith("drm-engine-"):
            busy[key.removeprefix("drm-engine-")] = int(number[0])
        elif key.startswith("drm-total-cycles-"):
            total[key.removeprefix("drm-total-cycles-")] = int(number[0])
        elif key.startswith("drm-cycles-"):
            busy[key.removeprefix("drm-cycles-")] = int(number[0])
        elif key.startswith("drm-total-") and re.match("vram|local", key.removeprefix("drm-total-")):
            memory += int(number[0]) * UNITS.get(value[number.end() :].strip(), 1)
    return Usage(pid, values["drm-pdev"], values["drm-client-id"], busy, total, capacity, memory)
