"""GPUs of the variants of a matrix: a row per variant, and lines over time of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.collection import CellResult
from kharness.report.curves import Kind, Scale, Strand
from kharness.report.gpu.balance import BALANCED
from kharness.report.gpu.columns import GpuCurve
from kharness.report.plots.gpu_samples import (
    BUSY,
    HEAT,
    LIMIT_NOTE,
    MEMORY,
    MIB_PER_GIB,
    POWER,
    Quantity,
    Sampled,
    are_alike,
    limit_beside,
    memory_limit,
    sampled,
    span,
    strand_of,
    time_unit,
)
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, plot_of
from kharness.report.plots.rows import (
    MOST_ROWS,
    MarkedRow,
    PlotMark,
    RowPlot,
    mean_of_complete,
    mean_row,
    percent,
)
from kharness.report.summary import Summary
from monitoring.gpu.aggregates import BANDS, POOR
from monitoring.telemetry.load_balance import EVEN


@dataclass(frozen=True)
class VariantNumber:
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


def _together(cell: CellResult) -> float | None:
    peak = cell.gpus.peak_memory_mb
    return None if peak is None else peak / MIB_PER_GIB


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
OF_VARIANTS = (
    VariantNumber(
        MEMORY,
        "Highest memory of the fullest GPU (GiB)",
        "needs the most memory",
        "needs the least memory",
        "Memory peaks at",
        _fullest,
    ),
    VariantNumber(
        BUSY,
        "Time in which the GPUs compute (%)",
        "keeps its GPUs busiest",
        "keeps its GPUs least busy",
        "GPUs are busy",
        lambda cell: cell.gpus.mean("utilization"),
    ),
    VariantNumber(
        _WAITS,
        "Time in which ranks wait for the slowest (%)",
        "loses the most time to slow ranks",
        "loses the least time to slow ranks",
        "Ranks wait",
        _waited,
    ),
    VariantNumber(
        POWER,
        "Mean power of the GPUs together (W)",
        "draws the most power",
        "draws the least power",
        "GPUs draw",
        _power,
    ),
    VariantNumber(
        HEAT,
        "Highest temperature of any GPU (°C)",
        "has the hottest GPU",
        "has the coolest GPUs",
        "The hottest GPU reaches",
        lambda cell: cell.gpus.peak("temperature"),
    ),
)


TOGETHER = VariantNumber(
    MEMORY,
    "Highest memory of all GPUs of a run together (GiB)",
    "needs the most memory on all GPUs",
    "needs the least memory on all GPUs",
    "All GPUs together peak at",
    _together,
)
"""Drawn beside that of the fullest GPU where there is room."""


def of_variants(summary: Summary, one: VariantNumber, most: int = MOST_ROWS) -> RowPlot | None:
    """Return a row per variant, the highest first: a dot per run, a bar to the mean of the complete ones."""
    runs = {
        variant.label: [
            (cell.run.complete, value) for cell in variant.cells if (value := one.of_run(cell)) is not None
        ]
        for variant in summary.variants
    }
    means = {label: mean_of_complete(own) for label, own in runs.items() if own}
    if not means:
        return None
    ordered = sorted(means, key=lambda label: means[label], reverse=True)
    quantity = one.quantity
    if _alike(list(means.values()), one):
        # Where all are alike, an order by the mean is an order by noise, and would read as a ranking.
        most = MOST_IN_COLOR
        ordered = list(means) if len(means) <= most else ordered
    ends = len(ordered) > most
    shown = [*ordered[: most // 2], *ordered[-most // 2 :]] if ends else ordered
    highest = max(value for own in runs.values() for _, value in own)
    end = 1.06 * highest or 1.0
    limit = None
    if one.of_run is _fullest and (total_mb := _total_of_all(summary)):
        end, has_limit = memory_limit(highest * MIB_PER_GIB, total_mb)
        limit = total_mb / MIB_PER_GIB if has_limit else None
    elif quantity is BUSY:
        end = 100.0
    axis = Scale("linear", 0.0, end)
    rows = [mean_row(label, runs[label], axis, quantity.words) for label in shown]
    if limit:
        line = PlotMark("limit", percent(limit, axis))
        rows = [replace(row, marks=[*row.marks, line]) for row in rows]
    caption = "Dot: a run; bar: mean of the complete runs"
    caption += "; dashed: what the GPU has" if limit else ""
    if ends:
        caption += f". The {most // 2} highest and the {most // 2} lowest of {len(ordered)} variants"
    return RowPlot(_most_and_least(means, ordered, one), f"{caption}.", rows, axis.ticks(4), one.axis)


def _total_of_all(summary: Summary) -> float | None:
    """Return the memory in MiB of each GPU whose use is known; None if they differ or do not say."""
    totals = {
        gpu.total_mb
        for variant in summary.variants
        for cell in variant.cells
        if _fullest(cell) is not None
        for gpu in cell.gpus.gpus
        if gpu.total_mb
    }
    return totals.pop() if len(totals) == 1 else None


def _most_and_least(means: Mapping[str, float], ordered: Sequence[str], one: VariantNumber) -> str:
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


def _alike(values: Sequence[float], one: VariantNumber) -> bool:
    """Whether nothing stands out: of waiting what counts as evenly loaded, too."""
    return are_alike(values) or (one.quantity is _WAITS and max(values) < 100 * EVEN)


def _span_of(values: Sequence[float], one: VariantNumber) -> str:
    return span(min(values), max(values), one.quantity)


# Lines of one variant, and lines in gray.
_MOST_RUNS, _MOST_IN_GRAY = 4, 40
_OF_RUN = {
    "memory": ("Memory of a run peaks at", "Memory in use on all GPUs of a run (GiB)"),
    "power": ("Power of a run peaks at", "Power of all GPUs of a run (W)"),
    "temperature": ("The hottest GPU reaches", "Temperature of the hottest GPU of a run (°C)"),
}
"""Words of the title, and of the axis."""


def over_time(summary: Summary, quantity: Quantity) -> Plot | None:
    """Return a line per run of all of its GPUs together: of the hottest one, and else their sum."""
    runs = [run for run in sampled(summary) if quantity.name in run.history.together]
    peaks = {run.cell.name: _peak(run.history.together[quantity.name], quantity) for run in runs}
    if not runs:
        return None
    fullest = max(runs, key=lambda run: peaks[run.cell.name])
    words, axis = _OF_RUN[quantity.name]
    totals = [gpu.total_mb for gpu in fullest.history.gpus]
    has = sum(map(float, filter(None, totals))) if quantity is MEMORY and all(totals) else 0.0
    of_all = f" of {has * MEMORY.scale:,.1f}" if has else ""
    title = f"{words} {peaks[fullest.cell.name]:,.{quantity.digits}f}{of_all} {quantity.unit}"
    if len({run.variant for run in runs}) > 1:
        title += " in all variants" if are_alike([*peaks.values()]) else f", with {fullest.variant}"
    plot = _lines(runs, lambda run: run.history.together.get(quantity.name), peaks, quantity, has)
    return replace(plot, title=title, quantity=axis, in_words=f"{title}. Over time: {title} {plot.alt}")


def memory_of_each(summary: Summary) -> list[Plot]:
    """Return a plot per GPU, with a line per run."""
    runs = [run for run in sampled(summary) if any("memory" in gpu.curves for gpu in run.history.gpus)]
    found: dict[str, dict[str, float]] = {}
    of_gpu = {(run.cell.name, gpu.label): gpu for run in runs for gpu in run.history.gpus}
    for (name, label), gpu in of_gpu.items():
        if "memory" in gpu.curves:
            found.setdefault(label, {})[name] = gpu.spreads["memory"].peak / MIB_PER_GIB
    highest = max((peak for peaks in found.values() for peak in peaks.values()), default=0.0)
    total = max((gpu.total_mb or 0.0 for gpu in of_gpu.values()), default=0.0)
    # One axis for the plots of all GPUs, which stand side by side.
    end, _ = memory_limit(highest * MIB_PER_GIB, total)
    plots = []
    for label, peaks in found.items():

        def curve_of(run: Sampled, label: str = label) -> GpuCurve | None:
            gpu = of_gpu.get((run.cell.name, label))
            return gpu.curves.get("memory") if gpu else None

        own = [run for run in runs if curve_of(run)]
        has = max((of_gpu[run.cell.name, label].total_mb or 0.0 for run in own), default=0.0)
        of_all = f" of {has / MIB_PER_GIB:.1f} GiB" if has else " GiB"
        title = f"{label}: {max(peaks.values()):.2f}{of_all}"
        plot = _lines(own, curve_of, peaks, MEMORY, has, end)
        plots.append(replace(plot, title=title, quantity="Memory in use (GiB)"))
    return plots


def _peak(curve: GpuCurve, quantity: Quantity) -> float:
    return quantity.scale * max((value for value in curve.peaks if value == value), default=0.0)


def _lines(
    runs: Sequence[Sampled],
    curve_of: Callable[[Sampled], GpuCurve | None],
    peaks: Mapping[str, float],
    quantity: Quantity,
    has_mb: float = 0.0,
    end: float = 0.0,
) -> Plot:
    """Return lines of runs: bold the first of each variant; of many variants the highest and the lowest.

    Memory has a line at what there is, where that is on its axis, which may go on to an `end`.
    """
    unit, x_label = time_unit(runs)
    labels = list(dict.fromkeys(run.variant for run in runs))
    many = len(labels) > MOST_IN_COLOR
    if many:
        ordered = sorted(runs, key=lambda run: -peaks[run.cell.name])
        labels = [ordered[0].variant, ordered[-1].variant]
    colors = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    drawn: dict[str, list[Strand]] = {}
    for run in runs:
        if curve := curve_of(run):
            color = colors.get(run.variant, -1)
            line = strand_of(run.variant if color >= 0 else "", color, curve, unit, quantity.scale)
            if not run.cell.run.complete:
                line = replace(line, kind="unfinished", lows=(), highs=())
            drawn.setdefault(run.variant, []).append(line)
    behind = [
        replace(lines[0], kind="other", lows=(), highs=())
        for label, lines in drawn.items()
        if label not in colors
    ]
    strands = behind[:_MOST_IN_GRAY]
    for label in colors:
        # False sorts first: a complete run, where there is one, has the bold line
        first, *others = sorted(drawn.get(label, []), key=lambda line: line.kind != "mean")[:_MOST_RUNS]
        strands += [
            *(replace(one, kind="run", lows=(), highs=()) if one.kind == "mean" else one for one in others),
            first,
        ]
    top = 1.05 * max(
        (value for one in strands for value in (*one.ys, *one.highs) if value == value), default=1.0
    )
    said = (
        ["In color: the variants with the highest and the lowest peak; the others in gray."] if many else []
    )
    if quantity is MEMORY:
        own, _ = memory_limit(max(peaks.values()) * MIB_PER_GIB, has_mb)
        top = end or own
        if 0 < has_mb * quantity.scale <= top:
            longest = max(strands, key=lambda one: one.xs[-1])
            strands.insert(0, limit_beside(longest, has_mb * quantity.scale))
            said.append(LIMIT_NOTE if end else "Dashed: the memory that the GPUs of a run have.")
    axis: Scale | Kind = "linear" if quantity is HEAT else Scale("linear", 0.0, top or 1.0)
    return plot_of(f"gpu_{quantity.name}", "", strands, x_label=x_label, scale=axis, said=said)


def balance_of(runs: Sequence[Sampled], most: int) -> RowPlot | None:
    """Return how far GPUs' means are from one another: a row per quantity of a run, or per run of several."""
    found = {run.cell.name: {name: run.history.balance(name) for name in BALANCED} for run in runs[:most]}
    known = [cv for own in found.values() for cv, _ in own.values() if cv is not None]
    if not known:
        return None
    axis = Scale("linear", 0.0, max(1.25 * BANDS[-1][0], 1.1 * max(known)))
    bands = [PlotMark("limit", percent(limit, axis)) for limit, _ in BANDS]
    rows = []
    for name, own in found.items():
        marks = [
            (i, quantity, cv, band) for i, (quantity, (cv, band)) in enumerate(own.items()) if cv is not None
        ]
        if len(found) == 1:
            rows += [
                MarkedRow(quantity, [*bands, PlotMark("point", percent(cv, axis))], f"{cv:.1f} % {band}")
                for _, quantity, cv, band in marks
            ]
        elif marks:
            _, quantity, cv, band = max(marks, key=lambda mark: mark[2])
            points = [PlotMark(f"point c{i}", percent(at, axis)) for i, _, at, _ in marks]
            rows.append(MarkedRow(name, [*bands, *points], f"{quantity} {cv:.1f} % {band}"))
    names = ", ".join(f"{name} below {limit:g}" for limit, name in BANDS)
    caption = f"Standard deviation over mean of the GPUs' means. Dashed: {names}, else {POOR}."
    left_out = f" The first {most} of {len(runs)} runs." if len(runs) > most else ""
    legend = [(name, i) for i, name in enumerate(BALANCED)] if len(found) > 1 else []
    return RowPlot(
        "How far GPUs are from one another",
        caption + left_out,
        rows,
        axis.ticks(5),
        "CV over the GPUs (%)",
        legend,
    )
