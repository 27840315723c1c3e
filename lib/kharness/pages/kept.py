"""Keeps what was made from a file until the file changes: a page asks often, a file changes seldom."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

Made = TypeVar("Made")

# Of more files the oldest are read again.
MOST_KEPT = 50_000


class Kept(Generic[Made]):
    """Values made from files; any thread may ask."""

    def __init__(self, make: Callable[[Path], Made], missing: Made) -> None:
        """`make` reads a file that is there; `missing` stands for one that is not."""
        self._make = make
        self._missing = missing
        self._known: dict[str, tuple[tuple[int, int, int], Made]] = {}

    def of(self, path: Path) -> Made:
        """Return what a file holds. What `make` raises is raised."""
        key = str(path)
        try:
            status = os.stat(key, follow_symlinks=False)
        except FileNotFoundError:
            self._known.pop(key, None)
            return self._missing
        now = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(key)
        if known is not None and known[0] == now:
            return known[1]
        made = self._make(path)
        self._known.pop(key, None)
        while len(self._known) >= MOST_KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = (now, made)
        return made
