"""Rows of foreign stores as values: nested names become one, and the names of step and time are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from monitoring.bridge.source import Reported
from monitoring.journal.encoding.global_step import as_step

# Names under which programs and their trackers report the step, the first that is there counts; and the time.
STEPS = ("global_step", "trainer/global_step", "train/global_step", "step", "iter", "iteration", "_step")
TIMES = ("_timestamp", "timestamp", "time")

# What trackers add to rows of their own accord.
OF_TRACKERS = ("_step", "_runtime")

# An epoch second of 2001-09-09: smaller numbers called `time` are durations.
FIRST_TIME = 1e9


def flattened(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield name and value, names of nested mappings joined by `/`."""
    for name, value in values.items():
        if isinstance(value, dict):  # as all parsers make them
            yield from flattened(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def reported(row: Mapping[str, object], place: int) -> Reported:
    """Return a row of a table; columns that say its step and time are no values.

    ValueError for one that is nested as deep as Python can go.
    """
    try:
        values = dict(flattened(row))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    step = None
    for name in STEPS:
        if name in values and (step := as_step(values[name])) is not None:
            del values[name]
            break
    for name in OF_TRACKERS:
        values.pop(name, None)
    time = None
    for name in TIMES:
        if name not in values:
            continue
        at = values[name]
        if isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at) and at > FIRST_TIME:
            time = float(at) if time is None else time
            del values[name]
    return Reported(values, place, step, time)
