"""Cells that the plan excuses from passing: refused by the option tree, or quarantined as known failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def known_failures(plan: Mapping[str, object]) -> Mapping[str, str]:
    """Cell name to reason, for the quarantined cells of matrix.json; `Cell.known_failure` has it too."""
    return _named(plan.get("quarantine"), "cell")


def refused(plan: Mapping[str, object]) -> Mapping[str, str]:
    """Cell name to reason, for the cells that the option tree refused and the plan skipped."""
    return _named(plan.get("refused"), "name")


def _named(entries: object, key: str) -> Mapping[str, str]:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return {}
    return {
        str(entry[key]): str(entry.get("reason") or "no reason given")
        for entry in entries
        if isinstance(entry, Mapping) and key in entry
    }
