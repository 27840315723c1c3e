"""The harness's files in a run directory, how a run is launched, and how it ended.

`kharness.runs("results")`, the call, is `select` of kharness.runs.query.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from kharness.runs.query.selection import RunSelection


class _CallableModule(ModuleType):
    """This package: Python binds it to the name `kharness.runs`, which users call."""

    def __call__(self, folder: Path | str = "results", *, where: str = "") -> RunSelection:
        from kharness.runs.query.selection import select

        return select(folder, where=where)


sys.modules[__name__].__class__ = _CallableModule
