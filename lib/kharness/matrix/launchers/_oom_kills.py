"""Count the processes that the kernel has killed on this host for lack of memory.

A process that it kills ends with SIGKILL like any other; only a counter says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


class OomKills:
    """Reads the counter of our memory cgroup, or without one that of the machine (Linux)."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` has `proc` and what proc/self/mountinfo names."""
        self._root = root
        self._counter = next((path for path in self._counters() if _count(path) is not None), None)

    def count(self) -> int | None:
        """Kills since the cgroup was made or the machine started; None where the system does not say."""
        return _count(self._counter) if self._counter else None

    def reason_since(self, before: int | None) -> str:
        """Return an explanation of a SIGKILL from elsewhere; empty if no kill was counted since `before`."""
        now = self.count()
        if now is None or before is None or now <= before:
            return ""
        return f"killed by the kernel for want of memory (oom_kill in {self._counter} rose to {now})"

    def _counters(self) -> Iterator[Path]:
        proc = self._root / "proc"
        try:
            groups = (proc / "self/cgroup").read_text().splitlines()
            mounts = (proc / "self/mountinfo").read_text().splitlines()
        except OSError:
            groups = mounts = []
        paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in groups)}
        for line in mounts:
            # 36 25 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory (man 5 proc)
            before, _, after = line.partition(" - ")
            within, mounted_at = before.split()[3:5]
            kind, _, options = after.split(maxsplit=2)
            if kind == "cgroup2" and "" in paths:
                yield self._file(mounted_at, paths[""], within, "memory.events")
            if kind == "cgroup" and "memory" in options.split(",") and "memory" in paths:
                yield self._file(mounted_at, paths["memory"], within, "memory.oom_control")
        yield proc / "vmstat"

    def _file(self, mounted_at: str, path: str, within: str, name: str) -> Path:
        """A file of our cgroup; a container may see only a part of the tree, mounted from `within`."""
        inside = path.removeprefix(within) if within != "/" else path
        return self._root / mounted_at.lstrip("/") / inside.lstrip("/") / name


def _count(counter: Path) -> int | None:
    try:
        lines = counter.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
