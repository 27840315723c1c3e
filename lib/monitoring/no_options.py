"""The `Options` of a drop-in that has none: see monitoring.dropins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoOptions:
    """Takes no option."""
