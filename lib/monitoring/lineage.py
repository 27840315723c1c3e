"""Documented import of `monitoring.journal.lineage`: reads a journal without what a resume superseded."""

from __future__ import annotations

from monitoring.journal.lineage import counting

__all__ = ["counting"]
