"""The documented door to `monitoring.journal.lineage`: read a journal without what a resume superseded."""

from __future__ import annotations

from monitoring.journal.lineage import counting

__all__ = ["counting"]
