"""The table of fields of records and reports: one row per field; every table elsewhere is a view of it.

A field that a training of yours logs needs no row: it is kept and shown, its unit is unknown, and `make
reproduce` compares it, because a difference that was overlooked is worse than one that is explained. Names
that say what they are (`tokens_per_second`, `backup_seconds`) are covered by patterns at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from monitoring.journal.fields.row import MEASURED, OWN, UNKNOWN_UNIT, FieldRow
from monitoring.journal.fields.table import FIELDS


@cache
def row_of(name: str) -> FieldRow:
    """Return the row of a measured field, or of a number in reports; else of the first pattern that fits.

    A field without a row has an unknown unit and stands nowhere.
    """
    named = _measured().get(name)
    if named is not None:
        return named
    families = (row for pattern, row in _families() if pattern.fullmatch(name))
    return next(families, FieldRow(name, UNKNOWN_UNIT, {}))


def rows_at(place: str) -> Iterator[FieldRow]:
    """Return the rows of an event, or of another place, in the order of the docs."""
    return (row for row in FIELDS if place in row.about)


def is_result(name: str) -> bool:
    """Whether a field is equal bit for bit when a training is reproduced; also one without a row."""
    return row_of(name).kind == "result"


@cache
def prometheus_rows() -> Mapping[str, FieldRow]:
    """Metric in Prometheus -> its row."""
    return {row.prometheus: row for row in FIELDS if row.prometheus}


@cache
def _measured() -> Mapping[str, FieldRow]:
    return {row.name: row for row in FIELDS if not MEASURED.isdisjoint(row.about)}


@cache
def _families() -> list[tuple[re.Pattern[str], FieldRow]]:
    return [(_expression(row.name), row) for row in FIELDS if OWN in row.about or "N" in row.name]


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace("N", r"\d+"))
