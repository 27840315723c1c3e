"""The dashboard's picture: lines of styled text for a terminal of any size, from samples and a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from monitoring.gpu.sample import GpuSample
from monitoring.terminal.display.cells import Line, Span, apart, cell_len, outside
from monitoring.terminal.display.graphs import axis, beside, graph
from monitoring.terminal.display.numbers import energy, number, span, total
from monitoring.terminal.history import GraphHistory
from monitoring.terminal.panels.gpu_table import (
    MEMORY_LIMITS,
    TEMPERATURE_LIMITS,
    WIDE,
    GpuTable,
    Grid,
    style_of,
)
from monitoring.terminal.panels.process_table import ProcessTable
from monitoring.terminal.source import LOOKING
from monitoring.terminal.timeline import NAMES, values_of

if TYPE_CHECKING:
    from monitoring.terminal.panels.run_panel import RunPanel

KEYS = "q quit  ? help  ↑↓ GPU  ←→ run  jk process  / filter  <> sort  +- zoom  t theme"


@dataclass(frozen=True)
class View:
    """The contents of the dashboard's picture."""

    width: int
    height: int
    now: float
    """UTC epoch seconds."""
    samples: Sequence[GpuSample] = ()
    """The newest sample of each GPU."""
    history: GraphHistory = field(default_factory=GraphHistory)
    problem: str | None = None
    """Why there is no sample of now."""
    run: RunPanel | None = None
    watched: str = ""
    """The directory in which a run is looked for."""
    processes: ProcessTable = field(default_factory=ProcessTable)
    selected: int | None = None
    """The index of the GPU whose graphs are shown; None for all together."""
    title: str = "GPUs"
    label: str = ""
    """A label for values that are not of this machine's GPUs: simulated."""
    host: Line = field(default_factory=list)
    """Processors and memory of the machine; empty of another one."""
    message: str = ""
    """The effect of the last key."""
    question: str = ""
    """A question that waits for an answer; it takes the place of the keys."""


@dataclass
class _Rows:
    """How many lines each part gets; 0 leaves out a part with its heading."""

    gpus: int = 1
    host: int = 0
    strips: int = 0
    graph: int = 1
    axis: int = 0
    processes: int = 0
    state: int = 0
    run_graph: int = 0
    run_axis: int = 0
    numbers: int = 0
    alert: int = 0

    def used(self) -> int:
        """Number of lines in all, with title, keys, and headings."""
        total = 3 + self.gpus + self.host + self.strips * (1 + self.graph) + self.axis
        total += self.processes + bool(self.processes) + self.state
        return total + self.run_graph + bool(self.run_graph) + self.run_axis + self.numbers + self.alert


def screen(view: View) -> list[Line]:
    """Return exactly `height` lines."""
    table = GpuTable(view.samples, view.selected, view.history.utilization, view.width)
    grid = table.grid(view.height)
    rows = _share_out(view, grid)
    lines = [_title(view)]
    lines += [view.host] if rows.host else []
    if view.samples:
        lines += table.lines(Grid(grid.columns, rows.gpus, grid.width))
        lines += _gpu_graphs(view, rows)
        lines += view.processes.lines(view.width, rows.processes) if rows.processes else []
    else:
        looking = view.problem == LOOKING
        text = f" {view.problem or 'no GPU is selected'}"
        lines.append([outside(text, view.width, "dim" if looking else "warn")])
    if view.run is not None:
        lines += _run(view.run, rows)
    elif view.watched:
        lines.append([outside(f" no run in {view.watched} yet", view.width, "warn")])
    lines = lines[: view.height - 1]
    lines += [[] for _ in range(view.height - 1 - len(lines))]
    return [*lines, _keys(view)]


def _share_out(view: View, grid: Grid) -> _Rows:
    """Give rows to what matters most first, then what is left to where it helps most."""
    has_gpus, run = bool(view.samples), view.run
    rows = _Rows(gpus=0 if not has_gpus else min(3, grid.rows))
    num_processes = max(1, len(view.processes.processes)) if has_gpus else 0
    strips = (1 if view.width >= WIDE else 2) if has_gpus else 0
    # A part may come several times: with few rows while others have none, with more once all have some.
    wishes = [
        ("state", 1 if run or view.watched else 0),
        ("host", 1 if view.host else 0),
        ("alert", 1 if run and run.run.alert else 0),
        ("gpus", grid.rows if has_gpus else 0),
        ("processes", min(2, num_processes)),
        ("numbers", 1 if run else 0),
        ("strips", strips),
        ("run_graph", 1 if run else 0),
        ("axis", 1 if has_gpus else 0),
        ("processes", min(3, num_processes)),
        *(("graph", 2), ("run_graph", 3 if run else 0), ("graph", 4)),
        ("processes", min(8, num_processes)),
        ("run_axis", 1 if run else 0),
        *(("run_graph", 12 if run else 0), ("graph", 12)),
        ("processes", num_processes),
        *(("run_graph", 18 if run else 0), ("graph", 18), ("run_graph", 99 if run else 0), ("graph", 99)),
    ]
    # each gets rows as long as the picture fits, and what is left goes to the next
    for part, most in wishes:
        if part in ("graph", "axis") and not rows.strips:
            continue
        if part == "run_axis" and not rows.run_graph:
            continue
        while getattr(rows, part) < most:
            setattr(rows, part, getattr(rows, part) + 1)
            if rows.used() > view.height:
                setattr(rows, part, getattr(rows, part) - 1)
                break
    return rows


def _title(view: View) -> Line:
    left = [Span(f" {view.title}", "strong")]
    if view.label:
        left += [Span("  "), Span(f" {view.label} ", "label")]
    if view.samples and view.problem is not None:  # so the totals are not current
        problem = outside(view.problem, min(view.width, cell_len(view.problem)), "warn")
        left += [Span("  "), problem]
    elif view.samples:
        used, watts = _together(view.samples)
        joules = total(sample.energy_joules for sample in view.samples)
        known = [
            "" if used is None else f"{used / 1024:.0f} GiB used",
            "" if watts is None else f"{watts:.0f} W",
            "" if joules is None else energy(joules),
        ]
        left.append(Span("  " + ", ".join(text for text in known if text)))
    right = [Span(time.strftime("%H:%M:%S UTC ", time.gmtime(view.now)), "dim")]
    return apart(left, right, view.width)


def _together(samples: Sequence[GpuSample]) -> tuple[float | None, float | None]:
    """Return MiB in use, and watts."""
    return (
        total(sample.memory_used_mb for sample in samples),
        total(sample.power_draw_watts for sample in samples),
    )


def _gpu_graphs(view: View, rows: _Rows) -> list[Line]:
    if not rows.strips:
        return []
    of = f"GPU {view.selected}" if view.selected is not None else "all GPUs"
    chosen = [sample for sample in view.samples if view.selected in (None, sample.index)]
    newest = values_of(chosen)
    side_by_side = 4 if view.width >= WIDE else 2
    width = max(1, view.width // side_by_side - 2)
    drawn = {name: view.history.values(view.selected, name, width) for name in NAMES}
    limit = total(sample.power_limit_watts for sample in chosen)
    top = limit or max((watts for watts in drawn["power"] if watts is not None), default=0.0) or 1.0
    graphs = [
        ("util", f"{of}: util", newest.util, 0.0, 100.0, "%", ""),
        ("memory", "memory", newest.memory, 0.0, 100.0, "%", style_of(newest.memory, MEMORY_LIMITS)),
        ("heat", "max temp", newest.heat, 20.0, 100.0, "°", style_of(newest.heat, TEMPERATURE_LIMITS)),
        ("power", "power", newest.power, 0.0, top, " W", ""),
    ]
    lines: list[Line] = []
    for first in range(0, rows.strips * side_by_side, side_by_side):
        boxes = [
            graph(
                f"{heading} {number(value, unit=unit)} ({low:.0f}–{high:.0f})",
                *(drawn[name], width, rows.graph, low, high, f"{style}_graph" if style else name, "graph"),
            )
            for name, heading, value, low, high, unit, style in graphs[first : first + side_by_side]
        ]
        lines += beside(boxes)
    return lines + ([_time_axis(view, width) * side_by_side] if rows.axis else [])


def _time_axis(view: View, width: int) -> Line:
    """Return the axis: how long ago its left end and middle are; the newest sample is on the right."""
    window = view.history.window(width)
    right = "now" if view.problem is None else time.strftime("%d %b %H:%M:%S", time.gmtime(view.history.end))
    return axis(f"-{span(window)}", f"-{span(window / 2)}", right, width, "graph")


def _run(panel: RunPanel, rows: _Rows) -> list[Line]:
    lines = [panel.state()] if rows.state else []
    lines += panel.graphs(rows.run_graph) if rows.run_graph else []
    lines += [panel.axis()] if rows.run_axis else []
    lines += [panel.numbers()] if rows.numbers else []
    return lines + ([panel.alert()] if rows.alert else [])


def _keys(view: View) -> Line:
    if view.question:
        return [outside(f" {view.question}", view.width, "label")]
    keys = outside(f" {KEYS} ", min(view.width, cell_len(KEYS) + 2), "keys")
    if not view.message:
        return [keys]
    room = view.width - cell_len(keys.text) - 2
    if cell_len(view.message) > room:  # better no keys for a while than half a file name
        return [outside(f" {view.message}", view.width, "strong")]
    return [keys, Span("  "), outside(view.message, room, "strong")]
