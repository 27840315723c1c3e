"""The GPUs: one line per GPU while they fit, else a grid of short entries, column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from monitoring.gpu.sample import GpuSample
from monitoring.terminal.display.cells import Line, Span, cell_len, fit, outside
from monitoring.terminal.display.graphs import graph_rows
from monitoring.terminal.display.numbers import NONE, number

# From this width on a line has more columns, and all graphs of GPUs stand side by side.
WIDE = 140

# Cells of the two kinds of entries in a grid, at least.
MEDIUM, SHORT = 40, 19

# Percent of memory, degrees Celsius and percent of the power limit: from the first on yellow, above the
# second red and followed by a `!`. The second ones are those of the alert rules.
MEMORY_LIMITS = (75.0, 90.0)
TEMPERATURE_LIMITS = (70.0, 80.0)
POWER_LIMITS = (95.0, 105.0)

# A GPU and a number of columns -> its utilization lately.
Utilization = Callable[[int, int], Sequence[float | None]]


class GpuCell(NamedTuple):
    """One value of a line."""

    heading: str
    width: int
    """Cells; negative: aligned to the left."""
    text: str
    style: str = ""


@dataclass(frozen=True)
class Grid:
    """How GPUs are laid out."""

    columns: int
    rows: int
    """Number of rows, without the heading."""
    width: int
    """Cells of one column."""

    @property
    def room(self) -> int:
        """Number of GPUs that can be seen."""
        return self.columns * self.rows

    @property
    def is_table(self) -> bool:
        """Whether each GPU has a line of its own."""
        return self.columns == 1


@dataclass(frozen=True)
class GpuTable:
    """Some GPUs to be shown."""

    samples: Sequence[GpuSample]
    selected: int | None
    utilization: Utilization
    width: int

    def grid(self, height: int) -> Grid:
        """Return the most telling layout in which all GPUs can be seen on a screen of that height."""
        count, enough = len(self.samples), max(3, height * 2 // 5)
        # one line per GPU while these take two fifths of the screen at most
        if count <= enough or self.width < 2 * SHORT:
            return Grid(1, min(count, enough), self.width)
        for least, most_rows in ((MEDIUM, enough), (SHORT, enough), (SHORT, max(enough, height - 8))):
            fewest = math.ceil(count / most_rows)
            if fewest * least <= self.width:
                columns = max(2, fewest)
                return Grid(columns, math.ceil(count / columns), self.width // columns)
        columns = self.width // SHORT
        return Grid(columns, most_rows, self.width // columns)

    def lines(self, grid: Grid) -> list[Line]:
        """Return a heading, and the rows of the grid."""
        shown = self._window(grid.room)
        hidden = len(self.samples) - len(shown)
        if grid.is_table:
            return self._table(shown, hidden)
        entry = self._medium if grid.width >= MEDIUM else self._short
        cells = [entry(sample, grid.width - 1) for sample in shown]
        heading = _fitted([Span(_headings(cells[0]), "heading")], grid.width)
        more = [outside(f"  +{hidden} ↑↓", grid.width, "warn")] if hidden else heading
        lines: list[Line] = [more + heading * (math.ceil(len(shown) / grid.rows) - 1)]
        for row in range(grid.rows):
            line: Line = []
            for place in range(row, len(shown), grid.rows):
                line += _fitted(self._entry(shown[place], cells[place]), grid.width)
            lines.append(line)
        return lines

    def _window(self, rows: int) -> Sequence[GpuSample]:
        """Return as many GPUs as fit, the selected one among them."""
        indices = [sample.index for sample in self.samples]
        place = indices.index(self.selected) if self.selected in indices else 0
        first = min(max(0, place - rows + 1), len(indices) - rows) if len(indices) > rows else 0
        return self.samples[first : first + rows]

    def _table(self, shown: Sequence[GpuSample], hidden: int) -> list[Line]:
        table = [self._full(sample) for sample in shown]
        more = f"name (+{hidden} ↑↓)" if hidden else "name"
        headings = [more if cell.heading == "name" else cell.heading for cell in table[0]]
        widths = [cell.width for cell in table[0]]
        lines: list[Line] = [[Span(" ".join(map(fit, headings, widths)), "heading")]]
        return lines + [self._line(sample, cells) for sample, cells in zip(shown, table, strict=True)]

    def _line(self, sample: GpuSample, cells: Sequence[GpuCell]) -> Line:
        target = f"gpu:{sample.index}"
        if sample.state != "ok":
            # lost and failing GPUs keep their line; what they last said is no longer so
            known = [Span(fit(cell.text, cell.width) + " ", "bad", target) for cell in cells[:3]]
            width = self.width - sum(cell_len(span.text) for span in known)
            return [*known, outside(f"{sample.state.upper()}: {sample.error}", width, "bad", target)]
        return _spans(cells, target)

    def _entry(self, sample: GpuSample, cells: Sequence[GpuCell]) -> Line:
        target = f"gpu:{sample.index}"
        if sample.state != "ok":
            return [
                Span(f"{cells[0].text} {fit(cells[1].text, cells[1].width)} {sample.state}", "bad", target)
            ]
        return _spans(cells, target)

    def _full(self, sample: GpuSample) -> list[GpuCell]:
        used, total = sample.memory_used_mb, sample.memory_total_mb
        memory = f"{number(used, 1 / 1024, 1)}/{number(total, 1 / 1024, 1)}" if used or total else NONE
        limit = sample.power_limit_watts
        wide = self.width >= WIDE
        memory_style, heat_style, power_style = _styles(sample)
        watts = number(sample.power_draw_watts) + (f"/{limit:.0f}" if limit else "")
        cells = [
            self._mark(sample),
            GpuCell("gpu", 3, str(sample.index), "strong"),
            GpuCell("name", -26 if wide else -14, _short(sample.name or sample.vendor, 26 if wide else 14)),
            GpuCell("util", 5, number(sample.utilization_percent, unit="%")),
            GpuCell("memory GiB", 11, memory, memory_style),
            GpuCell("mem% ", 6, number(sample.memory_percent, unit="%") + _bang(memory_style), memory_style),
            GpuCell("temp ", 6, number(sample.temperature_celsius, unit="°") + _bang(heat_style), heat_style),
            GpuCell("power W ", 10, watts + _bang(power_style), power_style),
            *(_more(sample) if wide else []),
        ]
        self._insert_history(sample, cells, self.width - 2, "util history")
        return cells

    def _medium(self, sample: GpuSample, width: int) -> list[GpuCell]:
        memory_style, heat_style, power_style = _styles(sample)
        watts = number(sample.power_draw_watts, unit="W")
        cells = [
            self._mark(sample),
            GpuCell("gpu", 3, str(sample.index), "strong"),
            GpuCell("util", 4, number(sample.utilization_percent, unit="%")),
            GpuCell("mem%", 5, number(sample.memory_percent, unit="%") + _bang(memory_style), memory_style),
            GpuCell("temp", 5, number(sample.temperature_celsius, unit="°") + _bang(heat_style), heat_style),
            GpuCell("power", 6, watts + _bang(power_style), power_style),
        ]
        self._insert_history(sample, cells, width, "history", at=3)
        return cells

    def _short(self, sample: GpuSample, width: int) -> list[GpuCell]:
        memory_style, heat_style, _ = _styles(sample)
        cells = [
            self._mark(sample),
            GpuCell("", 2, str(sample.index), "strong"),
            GpuCell("util", 4, number(sample.utilization_percent, unit="%")),
            GpuCell(
                "mem", 4, number(sample.memory_percent) + (_bang(memory_style).strip() or "%"), memory_style
            ),
            GpuCell(
                "°C", 3, number(sample.temperature_celsius) + (_bang(heat_style).strip() or "°"), heat_style
            ),
        ]
        if width >= SHORT + 6:
            self._insert_history(sample, cells, width, "history", at=3)
        return cells

    def _mark(self, sample: GpuSample) -> GpuCell:
        return GpuCell("", 1, ">" if sample.index == self.selected else " ", "strong")

    def _insert_history(
        self, sample: GpuSample, cells: list[GpuCell], width: int, heading: str, at: int = 4
    ) -> None:
        room = max(4, width - sum(abs(cell.width) + 1 for cell in cells))
        lately = graph_rows(self.utilization(sample.index, room), room, 1, 0, 100)[0]
        cells.insert(at, GpuCell(heading[:room], -room, lately, "util"))


def style_of(value: float | None, limits: tuple[float, float]) -> str:
    """`warn` from the first limit on, `bad` above the second."""
    if value is None or value < limits[0]:
        return ""
    return "bad" if value > limits[1] else "warn"


def _styles(sample: GpuSample) -> tuple[str, str, str]:
    """Return the styles of memory, temperature and power."""
    power, limit = sample.power_draw_watts, sample.power_limit_watts
    share = 100 * power / limit if power is not None and limit else None
    return (
        style_of(sample.memory_percent, MEMORY_LIMITS),
        style_of(sample.temperature_celsius, TEMPERATURE_LIMITS),
        style_of(share, POWER_LIMITS),
    )


def _more(sample: GpuSample) -> list[GpuCell]:
    reasons = [reason for reason in sample.throttle_reasons or [] if reason != "gpu_idle"]
    throttled = ", ".join(reasons) or NONE
    return [
        GpuCell("mem temp", 8, number(sample.temperature_memory_celsius, unit="°")),
        GpuCell("fan", 5, number(sample.fan_speed_percent, unit="%")),
        GpuCell("SM MHz", 7, number(sample.clock_sm_mhz)),
        GpuCell("tensor", 7, number(sample.tensor_activity_percent, unit="%")),
        GpuCell("throttle reasons", -24, _short(throttled, 24), "warn" if throttled != NONE else ""),
    ]


def _headings(cells: Sequence[GpuCell]) -> str:
    return " ".join(fit(cell.heading, cell.width) for cell in cells)


def _spans(cells: Sequence[GpuCell], target: str) -> Line:
    line: Line = []
    for cell in cells:
        line += [Span(fit(cell.text, cell.width), cell.style, target), Span(" ", "", target)]
    return line


def _fitted(line: Line, width: int) -> Line:
    """Fill a line up to so many cells; nothing of ours is wider."""
    return [*line, Span(" " * max(0, width - sum(cell_len(span.text) for span in line)))]


def _bang(style: str) -> str:
    """Return the mark of what is red, for terminals without colors."""
    return "!" if style == "bad" else " "


def _short(name: str, width: int) -> str:
    harmless = outside(name, max(width, cell_len(name))).text.strip()
    for word in ("NVIDIA ", "AMD ", "Intel "):
        harmless = harmless.removeprefix(word)
    return harmless if cell_len(harmless) <= width else outside(harmless, width - 1).text.rstrip() + "…"
