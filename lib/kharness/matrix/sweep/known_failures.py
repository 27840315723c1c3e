"""The quarantine of a sweep, whose trials a search has yet to choose, and of what has begun without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kharness.config.output import say
from kharness.matrix.planning.matrix_json import Plan, read_plan, write_quarantine
from kharness.matrix.planning.quarantine import Entry, idle, quarantined
from kharness.matrix.sweep.search import trial_name
from kharness.matrix.sweep.sweep import num_trials


def names_of(plan: Plan) -> list[str]:
    """Return the names of all runs of a plan, also of trials that a search has yet to choose."""
    known = [cell.name for cell in plan.cells]
    if plan.kind != "sweep":
        return known
    return [*known, *(trial_name(number) for number in range(len(known) + 1, num_trials(plan) + 1))]


def replace_quarantine(directory: Path, file: str, entries: Sequence[Entry]) -> None:
    """Put the `entries` of a file in place of the quarantine of a plan, and say which mean none of its runs.

    The caller holds the lock of the directory.
    """
    names = names_of(read_plan(directory))
    write_quarantine(directory, file, quarantined(entries, names))
    for line in idle(entries, names):
        say(f"note: {line}")
