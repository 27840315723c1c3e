"""Say how long each run of a matrix trains and how long all of them take, before the first begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kharness.config.make.typed import typed_setting, typed_target
from kharness.matrix.launchers import schedules
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.running.durations import time_left
from kharness.matrix.running.table import duration
from kharness.runs.launch import Launch
from monitoring.counts import counted

# Seconds from which on it is said how to shorten a matrix.
LONG = 3600.0


def time_lines(plan: Plan, expected: Mapping[str, float], *, jobs: int) -> list[str]:
    """Return a line on a new matrix, and for one of hours another on what shortens it.

    `expected` has the seconds of its runs by name, as far as earlier runs tell them.
    """
    if schedules(plan.settings):  # nobody knows when a queue moves
        return []
    length = _length(plan.launches)
    of_program = bool(plan.template)
    known = [] if of_program else [expected[one.name] for one in plan.launches if one.name in expected]
    if not known:
        sooner = "" if of_program else f", or by {typed_target('check-model')}"
        return [f"  {length}estimate: once a run has ended{sooner}"]
    seconds = time_left([], known, jobs=jobs)
    assert seconds is not None
    at_once = "" if jobs == 1 else f", {jobs} at once"
    rest = "" if len(known) == len(plan.launches) else f" for {counted(len(known), 'run')} of them"
    lines = [f"  {length}estimate: {duration(seconds)}{rest}{at_once}"]
    return [*lines, _shorter(plan)] if seconds >= LONG else lines


def _length(launches: Sequence[Launch]) -> str:
    """Return `300 steps each; `, empty where the runs differ or their options do not say."""
    for symbol, unit in (("MAX_STEPS", "step"), ("NUM_EPOCHS", "epoch")):
        numbers = {one.asked.get(symbol) for one in launches}
        number = next(iter(numbers))
        if len(numbers) == 1 and isinstance(number, int) and number:
            return f"{number:,} {unit}{'' if number == 1 else 's'} each; "
    return ""


def _shorter(plan: Plan) -> str:
    axes = " ".join(f"{axis.symbol}=…" for axis in plan.axes)
    fewer = typed_setting(f"{axes} with fewer values, CONFIG_MAX_STEPS=…, JOBS=…", "fewer values, --jobs …")
    return f"  to shorten it: {fewer}; Ctrl-C stops it, and `{typed_target('continue')}` goes on"
