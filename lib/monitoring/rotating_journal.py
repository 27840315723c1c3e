"""Documented import of `monitoring.journal.rotating_journal`: gpu_stats.jsonl with its rotated parts."""

from __future__ import annotations

from monitoring.journal.rotating_journal import read_rotated

__all__ = ["read_rotated"]
