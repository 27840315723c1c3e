"""The process that follows a run; `python -m monitoring.agent RUN_DIR` is it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitoring.agent.follow import catch_up, is_followed, undelivered

__all__ = ["catch_up", "is_followed", "undelivered"]

_MODULES = {
    "catch_up": "follow",
    "is_followed": "follow",
    "undelivered": "follow",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
