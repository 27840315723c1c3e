"""Where programs report their metrics: one kind of store per module.

Each has `RICHNESS`, by which of two sources of one metric the one with more counts, and `find(watched)`,
which yields its sources as far as they exist; maybe `variables(watched)`, environment variables that the
program gets unless it has them. Where several programs add rows to one store, `SHARED` is true; where a store
may come after the first value, `is_expected(watched)` says whether one is to come.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType

from monitoring.dropins import DropIns

SOURCE_KINDS = DropIns("source", "monitoring.bridge.sources")

# That of what `monitoring.Run` writes: nothing is richer.
RICHEST = 100


@functools.cache
def source_kinds() -> Mapping[str, ModuleType]:
    """Return the module of each kind by its name, the richest first."""
    modules = {name: SOURCE_KINDS.load(name) for name in SOURCE_KINDS.names}
    return dict(sorted(modules.items(), key=lambda item: -richness(item[0])))


def richness(kind: str) -> int:
    """Return how much a kind of source keeps of what is reported."""
    return int(SOURCE_KINDS.load(kind).RICHNESS)
