"""A reproduction takes from its past run the changes requested then, after the same steps, and the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kharness.runs.files import REPLAYED_JSON
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.records import Record

REPLAYED = frozenset({"log_every", "lr_factor", "evaluate", "checkpoint"})
"""The words of requests that are applied again; a past stop, or a profile, changes no result."""

EXPECTED_DATA = "KHARNESS_EXPECTED_DATA"
"""Variable with the SHA-256 of the data that the past run had, without which the training is refused."""


def write_replayed(directory: Path, changes: Sequence[Record]) -> None:
    """Have the run in a new directory make these changes (control_change records), if there are any."""
    found = [change for change in changes if change.get("control") in REPLAYED]
    if found:
        write_atomically(directory / REPLAYED_JSON, json.dumps(found, indent=2).encode() + b"\n")


def replayed_changes(directory: Path) -> list[Record]:
    """Return the changes that `write_replayed` wrote; empty in a run that reproduces none."""
    try:
        changes: list[Record] = json.loads((directory / REPLAYED_JSON).read_bytes())
    except FileNotFoundError:
        return []
    return changes
