"""Where programs report their metrics: one kind of store per module.

Each has `RICHNESS`, by which of two sources of one metric the one with more counts, `variables(watched)`,
environment variables that the program gets unless it has them, and `find(watched)`, which yields its sources
as far as they exist.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from monitoring.bridge.source import Watched
from monitoring.dropins import DropIns

SOURCE_KINDS = DropIns("source", "monitoring.bridge.sources")

# That of what `monitoring.Run` writes: nothing is richer.
RICHEST = 100


@functools.cache
def source_kinds() -> Mapping[str, ModuleType]:
    """Return the module of each kind by its name, the richest first."""
    modules = {name: SOURCE_KINDS.load(name) for name in SOURCE_KINDS.names}
    return dict(sorted(modules.items(), key=lambda item: -richness(item[0])))


def stores_before(watched: Watched) -> dict[Path, tuple[int, int]]:
    """Return size and time of the last change of all stores that are there before the program starts."""
    found = {}
    everything = replace(watched, started=0.0, neighbors=None)
    for module in source_kinds().values():
        for source in module.find(everything):
            with contextlib.suppress(OSError):
                status = source.path.stat()
                found[source.path] = status.st_size, status.st_mtime_ns
    return found


def richness(kind: str) -> int:
    """Return how much a kind of source keeps of what is reported."""
    return int(SOURCE_KINDS.load(kind).RICHNESS)
