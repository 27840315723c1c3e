"""The last values of a run by the end of its journal alone, for lists of a thousand runs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from monitoring.journal.files import JOURNAL
from monitoring.journal.lineage import counting
from monitoring.journal.records import as_number, parsed, points
from monitoring.journal.series.rows import lost_names
from monitoring.journal.series.run_series import KINDS

# Some forty step records, and what stands between them.
LAST_BYTES = 16384


class LastValue(NamedTuple):
    """A metric as it was recorded last."""

    value: float
    """NaN if it was not finite."""
    step: int | None
    kind: str
    """Event of its record."""


def last_values(run_dir: Path) -> dict[str, LastValue]:
    """Return the last values of rank 0, by name as RunSeries has them, as far as the end of the journal goes.

    A metric that is recorded seldom may be missing, and the best value is known to who reads all: RunSeries.
    """
    found: dict[tuple[str, str], LastValue] = {}
    for record in counting(record for record in parsed(_lines(run_dir / JOURNAL)) if record is not None):
        kind, step = str(record.get("event")), as_number(record.get("global_step"))
        lost = dict.fromkeys(lost_names(record), math.nan)
        for name, value in {**lost, **points(record)}.items():
            found[kind, name] = LastValue(float(value), None if step is None else int(step), kind)
    named: dict[str, LastValue] = {}
    for kind in KINDS:
        for name in [name for event, name in found if event == kind]:
            named[name if name not in named else f"{name}@{kind}"] = found[kind, name]
    return named


def _lines(journal: Path) -> list[bytes]:
    """The complete lines at the end of a journal; none of one that does not exist."""
    try:
        file = journal.open("rb")
    except FileNotFoundError:
        return []
    with file:
        begins = max(0, os.fstat(file.fileno()).st_size - LAST_BYTES)
        lines = os.pread(file.fileno(), LAST_BYTES, begins).split(b"\n")
    # the first may be the rest of a line, and the last one is being written
    return lines[1 if begins else 0 : -1]
