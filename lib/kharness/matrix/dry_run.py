"""A dry run says what would be done: `make test_matrix` each cell, command and time; a training one step."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.generate import write_new_config
from kharness.config.make.typed import typed_make
from kharness.config.output import wrapped
from kharness.config.places import COMMAND
from kharness.config.tree import Tree
from kharness.matrix.launchers import launcher_lines
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.cells import Cell
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.planning.single import described
from kharness.matrix.running.durations import Estimate, History, time_left
from kharness.matrix.running.table import duration
from kharness.matrix.supervise import num_jobs
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch
from kharness.runs.seeds_of_run import TYPED
from kharness.runs.status import PENDING, RunStatus, write_status
from monitoring.counts import counted
from monitoring.host.libc import ending_with

# Stands for the time at which the matrix will start.
TIME = "UTCTIME"


def dry_run_lines(plan: Plan, history: History, *, shown: str) -> list[str]:
    """All that is printed of a plan, whose folder of results is `shown` under that name."""
    estimates = [history.expected(cell.resolved.values) if cell.resolved else None for cell in plan.cells]
    width = max(len(cell.name) for cell in plan.cells)
    lines = [headline(plan.cells, plan.axes)]
    is_known = any(estimates)
    places = {name: place for place, name in enumerate(plan.order)}
    rows = sorted(zip(plan.launches, estimates, strict=True), key=lambda row: places.get(row[0].name, 0))
    for launch, estimate in rows:
        seconds = duration(estimate.seconds) if estimate else "?"
        lines.append(f"  {launch.name:{width}}  {seconds:>8}" if is_known else f"  {launch.name}")
    if plan.cells and not plan.fragments:  # what a fragment holds has no word
        lines.append(f"one run alone: {one_cell(plan.cells[0])}")
    lines += launcher_lines(
        plan.settings,
        [replace(launch, expected=one.seconds if one else None) for launch, one in rows],
    )
    lines += _left_out(plan)
    lines += [f"note: {note}" for note in plan.notes]
    lines += estimate_lines(plan.cells, estimates, jobs=num_jobs(plan.settings), shown=shown)
    return lines


def one_cell(cell: Cell) -> str:
    """Return the `make train` command that trains the same as a cell, with what this call added."""
    asked = cell.resolved.asked if cell.resolved else ()
    typed = [
        one.origin.where
        for one in asked
        if one.origin.kind == TYPED and "=" in one.origin.where and not one.symbol.startswith("MATRIX_")
    ]
    words = dict.fromkeys([*typed, *(f"CONFIG_{name}={value}" for name, value in cell.values.items())])
    return typed_make(" ".join(["train", *map(shlex.quote, words)]))


def headline(cells: Sequence[Cell], axes: Sequence[Axis]) -> str:
    """Return how many runs the plan has, in a line."""
    models = ", ".join(dict.fromkeys(cell.model for cell in cells))
    return f"matrix: {counted(len(cells), 'run')} of {models} ({' '.join(axis.shown for axis in axes)})"


def estimate_lines(
    cells: Sequence[Cell], estimates: Sequence[Estimate | None], *, jobs: int, shown: str
) -> list[str]:
    """Return the expected duration and its basis, or that it is unknown."""
    known = [estimate for estimate in estimates if estimate]
    unknown = Counter(cell.model for cell, one in zip(cells, estimates, strict=True) if one is None)
    lines = []
    if known:
        total = time_left([], [one.seconds for one in known], jobs=jobs)
        assert total is not None
        at_once = "" if jobs == 1 else f", {jobs} at once"
        rest = f" for {len(known)} of {counted(len(cells), 'run')}" if unknown else ""
        lines.append(f"estimate: {duration(total)}{rest}{at_once}")
        lines.append(f"  {_judged_by(known, shown)}")
    for model, count in unknown.items():
        which = f" for {counted(count, 'run')}" if known else ""
        lines.append(f"estimate: unknown{which} until a run of {model} is complete in {shown}")
    return lines


def _judged_by(known: Sequence[Estimate], shown: str) -> str:
    fewest, most = min(one.runs for one in known), max(one.runs for one in known)
    count = counted(most, "complete run") if fewest == most else f"{fewest} to {most} complete runs"
    different = list(dict.fromkeys(symbol for one in known for symbol in one.different))
    names = ", ".join(different[:5]) + (" …" if len(different) > 5 else "")
    but = f"; {'it differs' if most == 1 else 'they differ'} in {names}" if names else ""
    return f"by the {count} in {shown} most like each{but}"


def _left_out(plan: Plan) -> list[str]:
    lines = []
    if plan.chosen:
        lines.append(f"only what FILTER={plan.chosen} matches")
    for title, entries in (
        ("left out by MATRIX_EXCLUDE", plan.excluded),
        ("refused by the option tree and skipped", [f"{one.name}: {one.reason}" for one in plan.refused]),
        ("in quarantine", [f"{name}: {reason}" for name, reason in plan.quarantine.items()]),
    ):
        lines += [f"{title}: {len(entries)}", *(f"  {entry}" for entry in entries)] if entries else []
    return lines


# A signal that comes just before a wait is handled when that is over.
LONGEST_WAIT = 0.05


def check_model(tree: Tree, base: Layer, command_line: Layer) -> int:
    """The exit code of the step; what it prints says what the training would take. Nothing is left."""
    dry = [Assignment("DRY_RUN", "y", Origin("make check-model", "one step"))]
    resolved = tree.resolve(base, command_line, dry)
    model = str(resolved.values["MODEL"])
    if resolved.values.get(COMMAND):
        raise MatrixError(f"{COMMAND} is a program of its own: none of its steps can be tried", hint="run it")
    with tempfile.TemporaryDirectory(prefix="kharness-check-") as folder:
        directory = Path(folder) / "configured"
        write_new_config(resolved, directory, root=tree.root)
        write_status(directory, RunStatus(PENDING))  # the training names no folder that is gone when it ends
        print(wrapped(f"configuration: {described(tree, resolved)}"), flush=True)
        return _exit_code([sys.executable, *Launch("", directory, tree.root, model, {}).program], tree.root)


def _exit_code(command: list[str], root: Path) -> int:
    """Run the command and return its exit code; signals to this process are passed on to it."""
    child = subprocess.Popen(command, cwd=root, preexec_fn=ending_with(os.getpid()))

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    # A terminal's Ctrl-C reaches the child by itself.
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        while (code := child.poll()) is None:
            time.sleep(LONGEST_WAIT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    # As a shell has it: Popen says -n for signal n.
    return 128 - code if code < 0 else code
