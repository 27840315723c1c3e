"""Say how long each run of a matrix trains and how long all of them take, before the first begins."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.make.typed import typed_setting, typed_target
from kharness.matrix.launchers import schedules
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.running.durations import time_left
from kharness.matrix.running.table import duration
from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON
from kharness.runs.launch import Launch
from kharness.runs.matrix_plan import read_matrix_json
from kharness.runs.rundir import plan_path
from kharness.runs.status import COMPLETE, read_status
from monitoring.counts import counted

# Parts of a command template that say what is computed.
COMPUTING = ("words", "environment", "files")
# Seconds from which on it is said how to shorten a matrix.
LONG = 3600.0


def time_lines(
    plan: Plan,
    launches: Sequence[Launch],
    settings: Mapping[str, object],
    expected: Mapping[str, float],
    *,
    jobs: int,
    begun: bool = False,
    left: float | None = None,
) -> list[str]:
    """Return a line on the runs that are about to start, and of hours another on what shortens them.

    `expected` has the seconds of runs by name, as far as earlier runs tell them. Of a matrix that has begun,
    `left` has the seconds of all of them together, which counts what is done of each.
    """
    length = _length(launches)
    # the configuration of a program says nothing of its time
    known = [] if plan.template else [expected[one.name] for one in launches if one.name in expected]
    if schedules(settings):
        each = f"about {duration(statistics.median(known))} each once begun; " if known else ""
        return [f"  {length}{each}the queue decides when they begin"]
    seconds = left if left is not None else time_left([], known, jobs=jobs) if known else None
    if seconds is None:
        when = "has ended" if plan.template else "is under way"
        return [f"  {length}{_took(plan)}a time left is shown once the first run {when}"]
    most = " at most, as losing runs are stopped early" if settings.get("MATRIX_EARLY_STOPPING") else ""
    is_part = left is None and len(known) < len(launches)
    rest = f" for {counted(len(known), 'run')} of them" if is_part else ""
    at_once = "" if jobs == 1 else f", {jobs} at once"
    lines = [f"  {length}estimate: {duration(seconds)}{rest}{at_once}{most}"]
    return [*lines, _shorter(plan, begun=begun)] if seconds >= LONG else lines


def _length(launches: Sequence[Launch]) -> str:
    """Return `300 steps each; `, empty where the runs differ or their options do not say."""
    for symbol, unit in (("MAX_STEPS", "step"), ("NUM_EPOCHS", "epoch")):
        numbers = {one.asked.get(symbol) for one in launches}
        number = next(iter(numbers), None)
        if len(numbers) == 1 and isinstance(number, int) and number:
            return f"{number:,} {unit}{'' if number == 1 else 's'} each; "
    return ""


def _took(plan: Plan) -> str:
    """Return `3 runs of this command took 4.0 s to 5.0 s each in sweep_…; `; empty without a complete one.

    The newest matrix or sweep of it counts. Its values may be others, so that this is no estimate.
    """
    places = plan.directory.parent.glob(f"*/{MATRIX_JSON}") if plan.template else ()
    for place in sorted(
        (path.parent for path in places if not path.parent.is_symlink()), reverse=True, key=_age
    ):
        try:
            content = read_matrix_json(place)
        except MatrixError:  # damaged
            continue
        before = content.get("template")
        if not before or place == plan.directory:
            continue
        if any(before.get(name) != plan.template.get(name) for name in COMPUTING):
            continue
        found = [read_status(place / cell["name"]) for cell in content["cells"]]
        last = [s.attempts[0].seconds for s in found if s.status == COMPLETE and len(s.attempts) == 1]
        if seconds := [one for one in last if one is not None]:
            low, high = duration(min(seconds)), duration(max(seconds))
            took = low if low == high else f"{low} to {high}"
            return f"{counted(len(seconds), 'run')} of this command took {took} each in {place.name}; "
    return ""


def _age(place: Path) -> float:
    try:
        return plan_path(place).stat().st_mtime
    except OSError:  # taken away while we looked
        return 0.0


def _shorter(plan: Plan, *, begun: bool) -> str:
    if begun:
        fewer = typed_setting("JOBS=…", "--jobs …")
    elif plan.kind == "sweep":
        fewer = typed_setting("SWEEP_TRIALS=…, MAX_STEPS=…, JOBS=…", "fewer values, --trials …, --jobs …")
    else:
        axes = " ".join(f"{axis.symbol}=…" for axis in plan.axes)
        of_tree = f"{axes} with fewer values, CONFIG_MAX_STEPS=…, JOBS=…"
        fewer = typed_setting(of_tree, "fewer values, --jobs …")
    return f"  to shorten it: {fewer}; Ctrl-C stops it, and `{typed_target('continue')}` goes on"
