"""The GPUs of a matrix, drawn by the page: a row per variant of each quantity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.collection import CellResult
from kharness.report.curves import Strand
from kharness.report.gpu.columns import GpuCurve
from kharness.report.graphs._gpu_lines import MIB_PER_GIB, TimeUnit, memory_limit, sampled, time_unit
from kharness.report.plots.cost_plots import MOST_ROWS, MarkedRow, PlotMark, RowPlot, bar, percent
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, plot_of
from kharness.report.plots.scales import Scale
from kharness.report.summary import Summary
from monitoring.telemetry.load_balance import EVEN

# Means that differ by less, relative to the highest, are called alike.
_ALIKE = 0.05


@dataclass(frozen=True)
class Quantity:
    """A quantity of GPUs, with the words of its pictures."""

    name: str
    """Its key in GpuSeries.curves."""
    axis: str
    unit: str
    verbs: tuple[str, str]
    """`is busy` for one GPU, `are busy` for several."""
    after: str
    """What follows the number and its unit."""
    scale: float = 1.0
    digits: int = 0

    def words(self, value: float) -> str:
        return f"{value:,.{self.digits}f} {self.unit}"


MEMORY = Quantity(
    "memory", "Memory in use (GiB)", "GiB", ("holds", "hold"), " on average", 1 / MIB_PER_GIB, 1
)
BUSY = Quantity(
    "utilization", "Time in which the GPU computes (%)", "%", ("is busy", "are busy"), " of the time"
)
POWER = Quantity("power", "Power (W)", "W", ("draws", "draw"), " on average")
HEAT = Quantity("temperature", "Temperature (°C)", "°C", ("is at", "are at"), " on average")


def strand_of(label: str, color: int, curve: GpuCurve, unit: TimeUnit, scale: float) -> Strand:
    """Return a line of means in the area from the lowest sample to the highest."""
    means, lows, highs = ([scale * one for one in some] for some in (curve.means, curve.lows, curve.peaks))
    return Strand(label, color, "mean", [one / unit.seconds for one in curve.seconds], means, lows, highs)


def span(low: float, high: float, quantity: Quantity) -> str:
    """`200 to 220 W`; one number where both round to it."""
    ends = [f"{value:,.{quantity.digits}f}" for value in (low, high)]
    return f"{' to '.join(dict.fromkeys(ends))} {quantity.unit}"


def are_alike(values: Sequence[float]) -> bool:
    """Whether nothing stands out."""
    return max(values) - min(values) <= _ALIKE * max(values)


# Lines of one variant.
_MOST_RUNS = 4


def gpus_of_variants(summary: Summary) -> Sequence[Plot | RowPlot]:
    """Return the variants by memory, utilization, waiting, power and heat; none of what no run recorded."""
    rows = [_of_variants(summary, one) for one in _OF_VARIANTS]
    return [plot for plot in (*rows, _memory_over_time(summary)) if plot]


@dataclass(frozen=True)
class _Compared:
    """A number of each run that variants are compared by."""

    quantity: Quantity
    axis: str
    most: str
    """Said of the variant with the highest mean."""
    least: str
    """Said of the one with the lowest."""
    alike: str
    """Said of all, where they are alike."""
    of_run: Callable[[CellResult], float | None]


def _fullest(cell: CellResult) -> float | None:
    peak = cell.gpus.peak("memory")
    return None if peak is None else peak / MIB_PER_GIB


def _power(cell: CellResult) -> float | None:
    total = cell.gpus.totals.get("power")
    return total[0] if total else None


def _waited(cell: CellResult) -> float | None:
    ranks = cell.ranks[0]
    return 100 * ranks.wasted_share if ranks else None


_WAITS = Quantity("waits", "", "%", ("", ""), " of the time", digits=1)
_OF_VARIANTS = (
    _Compared(
        MEMORY,
        "Highest memory of the fullest GPU (GiB)",
        "needs the most memory",
        "needs the least memory",
        "Memory peaks at",
        _fullest,
    ),
    _Compared(
        BUSY,
        "Time in which the GPUs compute (%)",
        "keeps its GPUs busiest",
        "keeps its GPUs least busy",
        "GPUs are busy",
        lambda cell: cell.gpus.mean("utilization"),
    ),
    _Compared(
        _WAITS,
        "Time in which ranks wait for the slowest (%)",
        "loses the most time to slow ranks",
        "loses the least time to slow ranks",
        "Ranks wait",
        _waited,
    ),
    _Compared(
        POWER,
        "Mean power of the GPUs together (W)",
        "draws the most power",
        "draws the least power",
        "GPUs draw",
        _power,
    ),
    _Compared(
        HEAT,
        "Highest temperature of any GPU (°C)",
        "has the hottest GPU",
        "has the coolest GPUs",
        "The hottest GPU reaches",
        lambda cell: cell.gpus.peak("temperature"),
    ),
)


def _of_variants(summary: Summary, one: _Compared) -> RowPlot | None:
    """Return a row per variant, the highest first: a dot per run, a bar to the mean of the complete ones."""
    runs = {
        variant.label: [(cell, value) for cell in variant.cells if (value := one.of_run(cell)) is not None]
        for variant in summary.variants
    }
    means = {
        label: statistics.fmean([value for cell, value in own if cell.run.complete] or [v for _, v in own])
        for label, own in runs.items()
        if own
    }
    if not means:
        return None
    ordered = sorted(means, key=lambda label: means[label], reverse=True)
    quantity, most = one.quantity, MOST_ROWS
    if _alike(list(means.values()), one):
        most = MOST_IN_COLOR
        ordered = list(means) if len(means) <= most else ordered
    ends = len(ordered) > most
    shown = [*ordered[: most // 2], *ordered[-most // 2 :]] if ends else ordered
    limits = {
        gpu.total_mb for own in runs.values() for cell, _ in own for gpu in cell.gpus.gpus if gpu.total_mb
    }
    highest = max(value for own in runs.values() for _, value in own)
    end = 1.06 * highest or 1.0
    limit = None
    if quantity is MEMORY and len(limits) == 1:
        end, has_limit = memory_limit(highest * MIB_PER_GIB, max(limits))
        limit = max(limits) / MIB_PER_GIB if has_limit else None
    elif quantity is BUSY:
        end = 100.0
    axis = Scale("linear", 0.0, end)
    rows = []
    for label in shown:
        marks = [bar("thick", 0.0, means[label], axis)]
        marks += [
            PlotMark("point" if cell.run.complete else "point hollow", percent(value, axis))
            for cell, value in runs[label]
        ]
        if limit:
            marks.append(PlotMark("limit", percent(limit, axis)))
        rows.append(MarkedRow(label, marks, quantity.words(means[label])))
    caption = "Dot: a run; bar: mean of the complete runs"
    caption += "; dashed: what the GPU has" if limit else ""
    if ends:
        caption += f". The {most // 2} highest and the {most // 2} lowest of {len(ordered)} variants"
    return RowPlot(_most_and_least(means, ordered, one), f"{caption}.", rows, axis.ticks(4), one.axis)


def _most_and_least(means: Mapping[str, float], ordered: Sequence[str], one: _Compared) -> str:
    values, words = [means[label] for label in ordered], one.quantity.words
    if _alike(values, one):
        everywhere = " in all variants" if len(ordered) > 1 else ""
        after = one.quantity.after if one.quantity in (BUSY, POWER, _WAITS) else ""
        return f"{one.alike} {_span_of(values, one)}{after}{everywhere}"
    high, low = values[0], values[-1]
    if len(ordered) > 2 and _alike(values[:-1], one):
        return f"{ordered[-1]} {one.least}: {words(low)}; the others {_span_of(values[:-1], one)}"
    if len(ordered) > 2 and _alike(values[1:], one):
        return f"{ordered[0]} {one.most}: {words(high)}; the others {_span_of(values[1:], one)}"
    return f"{ordered[0]} {one.most}: {words(high)}; {ordered[-1]} the least: {words(low)}"


def _alike(values: Sequence[float], one: _Compared) -> bool:
    """Whether nothing stands out: of waiting what counts as evenly loaded, too."""
    return are_alike(values) or (one.quantity is _WAITS and max(values) < 100 * EVEN)


def _span_of(values: Sequence[float], one: _Compared) -> str:
    return span(min(values), max(values), one.quantity)


def _memory_over_time(summary: Summary) -> Plot | None:
    """Return the memory of all GPUs of each run: bold the first of each variant; of many variants nothing."""
    runs = [run for run in sampled(summary) if "memory" in run.history.together]
    labels = list(dict.fromkeys(run.variant for run in runs))
    if not runs or len(labels) > MOST_IN_COLOR:
        return None
    unit = time_unit(runs)
    strands = []
    for color, label in enumerate(labels):
        own = [run for run in runs if run.variant == label][:_MOST_RUNS]
        curves = [run.history.together["memory"] for run in own]
        lines = [strand_of(label, color, curve, unit, MEMORY.scale) for curve in curves]
        strands += [*(replace(line, kind="run", lows=(), highs=()) for line in lines[1:]), lines[0]]
    fullest = max(runs, key=lambda run: run.history.peak_memory_mb or 0.0)
    totals = [gpu.total_mb for gpu in fullest.history.gpus]
    has = f" of {sum(map(float, filter(None, totals))) * MEMORY.scale:,.1f}" if all(totals) else ""
    peak = (fullest.history.peak_memory_mb or 0.0) * MEMORY.scale
    title = f"Memory of a run peaks at {peak:,.1f}{has} GiB"
    if len(labels) > 1:
        peaks = [run.history.peak_memory_mb or 0.0 for run in runs]
        title += " in all variants" if are_alike(peaks) else f", with {fullest.variant}"
    top = 1.05 * max(value for one in strands for value in (*one.ys, *one.highs) if value == value)
    plot = plot_of("gpu_memory", title, strands, x_label=unit.label, scale=Scale("linear", 0.0, top or 1.0))
    return replace(
        plot, quantity="Memory in use on all GPUs of a run (GiB)", alt=f"{title}. Over time: {plot.alt}"
    )
