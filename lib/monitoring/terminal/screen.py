"""The dashboard's picture: lines of styled text for a terminal of any size, from samples and a run.

Graphs are columns of eighth blocks: every terminal font has them, and drawing one takes microseconds.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from monitoring.gpu.aggregates import aggregate
from monitoring.gpu.sample import GpuSample
from monitoring.gpu_monitor.history import Snapshot
from monitoring.journal.end_status import COMPLETE
from monitoring.terminal.run_view import RunView


class Span(NamedTuple):
    """Text in one style, in rich's words for it."""

    text: str
    style: str = ""


Line = list[Span]

LOOKING = "looking for GPUs …"
BLOCKS = " ▁▂▃▄▅▆▇█"
NONE = "–"
HEADING = "bold cyan"
KEYS = "q quit  s save  r reset  ↑↓ GPU  ←→ run  ? help"

# From this width on there are more columns, and all graphs of GPUs stand side by side.
WIDE = 140

# Percent of memory, degrees Celsius and percent of the power limit: from the first on yellow, above the
# second red and followed by a `!`. The second ones are those of the alert rules.
MEMORY_LIMITS = (75.0, 90.0)
TEMPERATURE_LIMITS = (70.0, 80.0)
POWER_LIMITS = (95.0, 105.0)


class Trace(NamedTuple):
    """What the graphs show of one GPU, or of all together, one value per sample."""

    busy: deque[float | None]
    memory: deque[float | None]
    heat: deque[float | None]
    power: deque[float | None]


class Traces:
    """The traces of a history, each sample taken in once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen = -math.inf
        self._of: dict[int | None, Trace] = {}

    def clear(self) -> None:
        self._of.clear()

    def take(self, snapshots: Sequence[Snapshot]) -> None:
        """Add the snapshots, oldest first, that are newer than those before."""
        for snapshot in snapshots:
            if snapshot.time <= self._seen:
                continue
            self._seen = snapshot.time
            self._add(None, snapshot.gpus)
            for sample in snapshot.gpus:
                self._add(sample.index, [sample])

    def of(self, index: int | None) -> Trace:
        """Of one GPU; None: of all together."""
        if index not in self._of:
            self._of[index] = Trace(*(deque(maxlen=self._size) for _ in Trace._fields))
        return self._of[index]

    def _add(self, index: int | None, samples: Sequence[GpuSample]) -> None:
        trace = self.of(index)
        trace.busy.append(_mean(sample.utilization_percent for sample in samples))
        trace.memory.append(aggregate(samples)["total_memory_percent"])
        trace.heat.append(_most(sample.temperature_celsius for sample in samples))
        trace.power.append(_sum(sample.power_draw_watts for sample in samples))


@dataclass(frozen=True)
class View:
    """What is to be seen."""

    width: int
    height: int
    now: float
    """UTC epoch seconds."""
    samples: Sequence[GpuSample] = ()
    """The newest of each GPU."""
    traces: Traces = field(default_factory=lambda: Traces(1))
    problem: str | None = None
    """Why there is no sample of now."""
    run: RunView | None = None
    place: tuple[int, int] | None = None
    """Which of how many runs that train it is."""
    watched: str = ""
    """The directory in which a run is looked for."""
    selected: int | None = None
    """The index of the GPU whose graphs are shown; None for all together."""
    title: str = "GPUs"
    label: str = ""
    """What the values are if they are not of this machine's GPUs: simulated."""
    system: str = ""
    """Processor and memory of the machine, for the title."""
    message: str = ""
    """What the last key did."""


@dataclass
class _Rows:
    """How many lines each part gets."""

    gpus: int
    graph: int = 1
    processes: int = 1
    run_graph: int = 1


def screen(view: View) -> list[Line]:
    """Exactly `height` lines."""
    rows = _share_out(view)
    lines = [_title(view)]
    lines += _gpu_table(view, rows.gpus)
    if view.samples:
        lines += _gpu_graphs(view, rows.graph)
        lines += _processes(view, rows.processes)
    if view.run is not None:
        lines += _run(view, view.run, rows.run_graph)
    elif view.watched:
        lines.append([_outside(f" no run in {view.watched} yet", view.width, "yellow")])
    lines = lines[: view.height - 1]
    lines += [[] for _ in range(view.height - 1 - len(lines))]
    return [*lines, _keys(view)]


def _share_out(view: View) -> _Rows:
    """Every part its least, then what is left where it helps most."""
    rows = _Rows(gpus=max(1, len(view.samples)))
    num_processes = len(_all_processes(_chosen(view)))
    strips = 1 if view.width >= WIDE else 2

    def used() -> int:
        total = 3 + rows.gpus
        if view.samples:
            total += strips * (1 + rows.graph) + 1 + rows.processes
        if view.run is not None:
            total += 4 + rows.run_graph
        elif view.watched:
            total += 1
        return total

    while used() > view.height and rows.gpus > 3:
        rows.gpus -= 1  # the others are a scroll away
    wishes = [("processes", 3), ("graph", 2), ("run_graph", 3), ("graph", 4), ("processes", 8)]
    for part, most in [
        *wishes,
        ("run_graph", 12),
        ("graph", 12),
        ("processes", num_processes),
        ("run_graph", 99),
    ]:
        most = min(most, max(1, num_processes)) if part == "processes" else most
        while getattr(rows, part) < most:
            setattr(rows, part, getattr(rows, part) + 1)
            if used() > view.height:
                setattr(rows, part, getattr(rows, part) - 1)
                break
    return rows


def _title(view: View) -> Line:
    left = [Span(f" {view.title}", "bold")]
    if view.label:
        left += [Span("  "), Span(f" {view.label} ", "bold reverse yellow")]
    if view.samples and view.problem is not None:  # so the totals are not current
        left += [
            Span("  "),
            Span(_outside(view.problem, min(view.width, cell_len(view.problem))).text, "yellow"),
        ]
    elif view.samples:
        together = aggregate(view.samples)
        used, power = together["total_memory_used_mb"], together["total_power_watts"]
        energy = _sum(sample.energy_joules for sample in view.samples)
        known = [
            "" if used is None else f"{used / 1024:.0f} GiB used",
            "" if power is None else f"{power:.0f} W",
            "" if energy is None else _energy(energy),
        ]
        left.append(Span("  " + ", ".join(text for text in known if text)))
    right = [Span(time.strftime("%H:%M:%S UTC ", time.gmtime(view.now)), "dim")]
    system = Span(f"  {view.system}" if view.system else "", "dim")
    room = view.width - sum(len(span.text) for span in [*left, *right])
    return _apart([*left, system] if len(system.text) < room else left, right, view.width)


# ----------------------------------------------------------------- the table of GPUs


class _Cell(NamedTuple):
    heading: str
    width: int  # negative: to the left
    text: str
    style: str = ""


def _gpu_table(view: View, rows: int) -> list[Line]:
    if not view.samples:
        looking = view.problem == LOOKING
        text = f" {view.problem or 'no GPU is selected'}"
        return [[_outside(text, view.width, "dim" if looking else "yellow")]]
    shown = _window(view, rows)
    table = [_cells(view, sample) for sample in shown]
    hidden = len(view.samples) - len(shown)
    more = f"name (+{hidden} ↑↓)" if hidden else "name"
    headings = [more if cell.heading == "name" else cell.heading for cell in table[0]]
    widths = [cell.width for cell in table[0]]
    lines: list[Line] = [[Span(" ".join(map(_fit, headings, widths)), HEADING)]]
    for sample, cells in zip(shown, table, strict=True):
        lines.append(_gpu_line(view, sample, cells))
    return lines


def _gpu_line(view: View, sample: GpuSample, cells: Sequence[_Cell]) -> Line:
    if sample.state != "ok":
        # lost and failing GPUs keep their line; what they last said is no longer so
        known = [Span(_fit(cell.text, cell.width) + " ", "bold red") for cell in cells[:3]]
        width = view.width - sum(len(span.text) for span in known)
        return [*known, _outside(f"{sample.state.upper()}: {sample.error}", width, "bold red")]
    line: Line = []
    for cell in cells:
        line += [Span(_fit(cell.text, cell.width), cell.style), Span(" ")]
    return line


def _window(view: View, rows: int) -> Sequence[GpuSample]:
    """As many GPUs as fit, the selected one among them."""
    indices = [sample.index for sample in view.samples]
    place = indices.index(view.selected) if view.selected in indices else 0
    first = min(max(0, place - rows + 1), len(indices) - rows) if len(indices) > rows else 0
    return view.samples[first : first + rows]


def _cells(view: View, sample: GpuSample) -> list[_Cell]:
    used, total = sample.memory_used_mb, sample.memory_total_mb
    memory = f"{_number(used, 1 / 1024, 1)}/{_number(total, 1 / 1024, 1)}" if used or total else NONE
    power, limit = sample.power_draw_watts, sample.power_limit_watts
    share = 100 * power / limit if power is not None and limit else None
    watts = _number(power) + (f"/{limit:.0f}" if limit else "")
    styles = [
        _style(sample.memory_percent, MEMORY_LIMITS),
        _style(sample.temperature_celsius, TEMPERATURE_LIMITS),
        _style(share, POWER_LIMITS),
    ]
    wide = view.width >= WIDE
    cells = [
        _Cell("", 1, ">" if sample.index == view.selected else " ", "bold"),
        _Cell("gpu", 3, str(sample.index), "bold"),
        _Cell("name", -26 if wide else -14, _short(sample.name or sample.vendor, 26 if wide else 14)),
        _Cell("util", 5, _number(sample.utilization_percent, unit="%")),
        _Cell("memory GiB", 11, memory, styles[0]),
        _Cell("mem% ", 6, _number(sample.memory_percent, unit="%") + _mark(styles[0]), styles[0]),
        _Cell("temp ", 6, _number(sample.temperature_celsius, unit="°") + _mark(styles[1]), styles[1]),
        _Cell("power W ", 10, watts + _mark(styles[2]), styles[2]),
    ]
    if wide:
        reasons = [reason for reason in sample.throttle_reasons or [] if reason != "gpu_idle"]
        throttled = ", ".join(reasons) or NONE
        cells += [
            _Cell("mem temp", 8, _number(sample.temperature_memory_celsius, unit="°")),
            _Cell("fan", 5, _number(sample.fan_speed_percent, unit="%")),
            _Cell("SM MHz", 7, _number(sample.clock_sm_mhz)),
            _Cell("tensor", 7, _number(sample.tensor_activity_percent, unit="%")),
            _Cell("throttle reasons", -24, _short(throttled, 24), "yellow" if throttled != NONE else ""),
        ]
    room = view.width - 2 - sum(abs(cell.width) + 1 for cell in cells)
    room = max(4, room)
    busy = list(view.traces.of(sample.index).busy)[-room:]
    cells.insert(4, _Cell("util history", -room, graph_rows(busy, room, 1, 0, 100)[0], "green"))
    return cells


def _chosen(view: View) -> list[GpuSample]:
    """The selected GPU, or all."""
    return [sample for sample in view.samples if view.selected in (None, sample.index)]


# ----------------------------------------------------------------- graphs


def _gpu_graphs(view: View, rows: int) -> list[Line]:
    of = f"GPU {view.selected}" if view.selected is not None else "all GPUs"
    trace = view.traces.of(view.selected)
    top = _sum(sample.power_limit_watts for sample in _chosen(view)) or _most(trace.power) or 1.0
    graphs = [
        (f"{of}: util", trace.busy, 0.0, 100.0, "%", "green"),
        ("memory", trace.memory, 0.0, 100.0, "%", _style(_last(trace.memory), MEMORY_LIMITS) or "blue"),
        (
            "max temp",
            trace.heat,
            20.0,
            100.0,
            "°",
            _style(_last(trace.heat), TEMPERATURE_LIMITS) or "magenta",
        ),
        ("power", trace.power, 0.0, top, " W", "cyan"),
    ]
    side_by_side = 4 if view.width >= WIDE else 2
    lines: list[Line] = []
    for first in range(0, 4, side_by_side):
        boxes = [
            _graph(
                f"{name} {_number(_last(values), unit=unit)} ({low:.0f}–{high:.0f})",
                *(list(values), view.width // side_by_side - 2, rows, low, high, style),
            )
            for name, values, low, high, unit, style in graphs[first : first + side_by_side]
        ]
        lines += _beside(boxes)
    return lines


def graph_rows(values: Sequence[float | None], width: int, height: int, low: float, high: float) -> list[str]:
    """Columns of eighth blocks, the newest value on the right; None leaves a gap, the least is one eighth."""
    shown = _binned(values, width)
    eighths = [
        0
        if value is None
        else 1 + round((min(max(value, low), high) - low) / (high - low) * (8 * height - 1))
        for value in shown
    ]
    rows = []
    for row in range(height - 1, -1, -1):
        # count of eighths -> sign: a lookup, because this is most of what a picture costs
        signs = BLOCKS[0] * (8 * row) + BLOCKS + BLOCKS[8] * (8 * (height - row - 1))
        rows.append("".join([signs[count] for count in eighths]).rjust(width))
    return rows


def _binned(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: means of equally many neighbours, which stay together as more come."""
    each = math.ceil(len(values) / width)
    if each <= 1:
        return list(values)
    bins = [values[first : first + each] for first in range(0, len(values), each)]
    return [_mean(bin_) for bin_ in bins][-width:]


def _graph(
    heading: str, values: Sequence[float | None], width: int, rows: int, low: float, high: float, style: str
) -> list[Line]:
    lines: list[Line] = [[Span(" " + _fit(heading, -width) + " ", HEADING)]]
    return lines + [[Span(f" {row} ", style)] for row in graph_rows(values, width, rows, low, high)]


def _beside(boxes: Sequence[list[Line]]) -> list[Line]:
    return [[span for part in parts for span in part] for parts in zip(*boxes, strict=True)]


# ----------------------------------------------------------------- processes


def _processes(view: View, rows: int) -> list[Line]:
    found = _all_processes(_chosen(view))
    lines: list[Line] = [[Span(" gpu      pid  memory MiB  process", HEADING)]]
    if not found:
        untold = all(sample.processes is None for sample in _chosen(view))
        lines.append([Span(" not reported by the driver" if untold else " no compute processes", "dim")])
    ours = view.run.pid if view.run is not None else None
    for index, process in found[:rows]:
        memory = process.get("memory_mb")
        text = _number(memory if isinstance(memory, (int, float)) else None)
        mine = process.get("pid") == ours
        who = f"{process.get('name') or NONE}{'  (this run)' if mine else ''}"
        line = f" {index:>3} {process.get('pid')!s:>8} {text:>11}  "
        lines.append([Span(line), _outside(who, view.width - len(line), "bold green" if mine else "")])
    if len(found) > rows:
        lines[0].append(Span(f"  +{len(found) - rows}", "yellow"))
    return lines


def _all_processes(samples: Sequence[GpuSample]) -> list[tuple[int, dict[str, object]]]:
    """Those with the most memory first."""
    found = [(sample.index, process) for sample in samples for process in sample.processes or []]
    return sorted(found, key=lambda item: (-_as_number(item[1].get("memory_mb")), item[0]))


# ----------------------------------------------------------------- the run


def _run(view: View, run: RunView, rows: int) -> list[Line]:
    rank = run.rank
    steps = f"step {rank.step or 0}" + (f" of {rank.num_steps}" if rank.num_steps else "")
    epoch, left = rank.epoch(), run.seconds_left(view.now)
    parts = [
        run.status,
        steps,
        f"epoch {epoch:.2f}" if epoch is not None else "",
        f"{duration(left)} left" if left is not None else "",
    ]
    which = f" ({view.place[0]} of {view.place[1]})" if view.place is not None else ""
    room = view.width - len(f" run {which}  ") - 1
    if len(run.name) > room - len(_words(parts)):
        parts[2] = ""
    state = _words(parts)
    colour = {"running": "bold green", COMPLETE: "bold"}.get(run.status, "bold yellow")
    name = f" run {_middle(run.name, max(8, room - len(state)))}{which}"
    lines = [_apart([_outside(name, cell_len(name), HEADING)], [Span(state + " ", colour)], view.width)]
    points = list(run.points)
    half = view.width // 2 - 2
    losses, speeds = [point.loss for point in points], [point.samples_per_sec for point in points]
    lines += _beside(
        [
            _run_graph("loss", rank.gauges.get("training_loss"), losses, half, rows, "green"),
            _run_graph(
                "samples/s", rank.gauges.get("training_samples_per_second"), speeds, half, rows, "blue"
            ),
        ]
    )
    held = {
        "lr": "learning_rate",
        "grad norm": "gradient_norm",
        "val loss": "validation_loss",
        "val accuracy": "validation_accuracy",
    }
    numbers = "  ".join(
        f"{label} {rank.gauges[metric][0]:.4g}" for label, metric in held.items() if metric in rank.gauges
    )
    lines.append([Span(f" {numbers or 'no step is recorded yet'}")])
    lines.append([_outside(f" ! {run.alert}", view.width, "bold red")] if run.alert else [])
    return lines


def _run_graph(
    name: str,
    gauge: tuple[float, int] | None,
    values: Sequence[float | None],
    width: int,
    rows: int,
    style: str,
) -> list[Line]:
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    heading = name if gauge is None else f"{name} {_figure(gauge[0], 4)}"
    heading += f" ({_figure(low, 3)}–{_figure(high, 3)})" if known else ""
    return _graph(heading, values, width, rows, low, high if high > low else low + 1.0, style)


def duration(seconds: float) -> str:
    """A time for a person: `42 s`, `3:05 min`, `2:07 h`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 48 * 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


# ----------------------------------------------------------------- small parts of lines


def _keys(view: View) -> Line:
    keys = Span(f" {KEYS} ", "reverse")
    if not view.message:
        return [keys]
    room = view.width - len(keys.text) - 2
    if cell_len(view.message) > room:  # better no keys for a while than half a file name
        return [_outside(f" {view.message}", view.width, "bold")]
    return [keys, Span("  "), _outside(view.message, room, "bold")]


def _outside(text: str, width: int, style: str = "") -> Span:
    """Text that others wrote: nothing in it controls the terminal, and it takes exactly `width` cells."""
    harmless = "".join(sign if sign.isprintable() else "?" for sign in text)
    return Span(set_cell_size(harmless, max(0, width)), style)


def _apart(left: Line, right: Line, width: int) -> Line:
    gap = width - sum(len(span.text) for span in [*left, *right])
    return [*left, Span(" " * gap), *right] if gap >= 0 else left


def _fit(text: str, width: int) -> str:
    return text[:-width].ljust(-width) if width < 0 else text.rjust(width)


def _words(parts: Iterable[str]) -> str:
    return "  ".join(part for part in parts if part)


def _middle(name: str, width: int) -> str:
    """A name of which the middle is left out where it is too long: its beginning and its seed are telling."""
    if len(name) <= width:
        return name
    return f"{name[: (width - 1) // 2]}…{name[len(name) - width // 2 :]}"


def _short(name: str, width: int) -> str:
    harmless = _outside(name, max(width, len(name))).text.strip()
    for word in ("NVIDIA ", "AMD ", "Intel "):
        harmless = harmless.removeprefix(word)
    return harmless if len(harmless) <= width else harmless[: width - 1] + "…"


def _style(value: float | None, limits: tuple[float, float]) -> str:
    if value is None or value < limits[0]:
        return ""
    return "bold red" if value > limits[1] else "yellow"


def _mark(style: str) -> str:
    """What marks red where there are no colours."""
    return "!" if style == "bold red" else " "


def _number(value: float | None, factor: float = 1.0, digits: int = 0, unit: str = "") -> str:
    return NONE if value is None else f"{value * factor:.{digits}f}{unit}"


def _figure(value: float, digits: int) -> str:
    """With so many digits, and without an exponent for what a person counts: 14,512."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"


def _energy(joules: float) -> str:
    return f"{joules / 3600:.1f} Wh" if joules >= 3600 else f"{joules:.0f} J"


def _last(values: Sequence[float | None] | deque[float | None]) -> float | None:
    return values[-1] if values else None


def _mean(values: Iterable[float | None]) -> float | None:
    total, count = 0.0, 0
    for value in values:
        if value is not None:
            total, count = total + value, count + 1
    return total / count if count else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _as_number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
