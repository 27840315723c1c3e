"""The GPUs of a run or of a matrix, drawn by the page: each picture's title is what it shows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.collection import CellResult
from kharness.report.curves import Kind, Scale, Strand
from kharness.report.gpu.balance import FAR, seconds_lost, seconds_waited, verdict, wait_for_slow
from kharness.report.gpu.columns import MAX_POINTS, GpuCurve
from kharness.report.gpu.history import GpuRecording, GpuSeries
from kharness.report.plots.gpu_samples import MIB_PER_GIB, Sampled, TimeUnit, memory_limit, sampled, time_unit
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, plot_of, range_of
from kharness.report.plots.rows import MOST_ROWS, MarkedRow, PlotMark, RowPlot, bar, percent
from kharness.report.summary import Summary
from monitoring.telemetry.load_balance import EVEN, WORDS, RankBalance

DRAWN = frozenset(
    {
        "gpu_load_balance_analysis",
        "gpu_memory_comparison",
        "gpu_memory_timeline",
        "gpu_power_temperature",
        "per_gpu_memory_breakdown",
    }
)
"""Graphs that a page with these pictures does not need."""

GpuPlot = Plot | RowPlot


def gpu_plots(summary: Summary) -> Sequence[GpuPlot]:
    """Return the pictures of a run's GPUs and ranks, or of a matrix's variants; none of what is not known."""
    if summary.plan:
        rows = [_of_variants(summary, one) for one in _OF_VARIANTS]
        return [plot for plot in (*rows, _memory_over_time(summary)) if plot]
    cell = summary.cells[0]
    history, (ranks, _) = cell.gpus, cell.ranks
    several = len(history.gpus) > 1
    wanted: list[GpuPlot | None] = [
        _by_gpu(history, BUSY) if several else _over_time(cell, BUSY),
        _waiting(history, ranks) if ranks else None,
        _over_time(cell, MEMORY),
        _by_gpu(history, MEMORY) if several else None,
        _over_time(cell, POWER),
        _over_time(cell, HEAT),
    ]
    return [plot for plot in wanted if plot]


def _over_time(cell: CellResult, quantity: Quantity) -> Plot | None:
    """Return a line per GPU, in its range; of many GPUs the highest and lowest, and the others' range."""
    history = cell.gpus
    lines = [(gpu, curve) for gpu in history.gpus if (curve := gpu.curves.get(quantity.name))]
    if not lines:
        return None
    chosen, behind = lines, []
    if len(lines) > MOST_IN_COLOR:
        lowest, *behind, highest = sorted(lines, key=lambda line: line[0].spreads[quantity.name].mean)
        chosen = [highest, lowest]
    unit = time_unit([Sampled("", cell)])
    own = [
        strand_of(_label(gpu) if len(lines) > 1 else "", i, curve, unit, quantity.scale)
        for i, (gpu, curve) in enumerate(chosen)
    ]
    others = [replace(strand_of("", -1, curve, unit, quantity.scale), kind="other") for _, curve in behind]
    title = _title_over_time(history, quantity)
    ranges = [
        f"{_label(gpu)} {_range_words([one], quantity)}" for (gpu, _), one in zip(chosen, own, strict=True)
    ]
    ranges += [f"the others {_range_words(others, quantity)}"] if others else []
    limit = _limit(history, own[0]) if quantity is MEMORY else []
    notes = {
        "Gray line: the memory that a GPU has.": limit,
        "In color: the GPU with the highest and the one with the lowest mean; the others in gray.": others,
        "Of long recordings a point is a mean; areas reach from the lowest sample to the highest.": (
            history.num_samples > MAX_POINTS
        ),
    }
    plot = plot_of(
        f"gpu_{quantity.name}",
        title,
        [*limit, *range_of(others), *own],
        x_label=unit.label,
        scale=_scale(history, quantity),
        said=[note for note, holds in notes.items() if holds],
    )
    return replace(
        plot, quantity=quantity.axis, in_words=f"{quantity.axis} over time. {title}. {'; '.join(ranges)}."
    )


def _limit(history: GpuRecording, beside: Strand) -> list[Strand]:
    """Return a line at the memory that a GPU has, if it is on the axis."""
    if not _memory_limit(history)[1]:
        return []
    total = max(gpu.total_mb or 0.0 for gpu in history.gpus) / MIB_PER_GIB
    return [Strand("", -1, "other", (beside.xs[0], beside.xs[-1]), [total, total])]


def _range_words(strands: Sequence[Strand], quantity: Quantity) -> str:
    known = [value for one in strands for value in (*one.lows, *one.highs) if value == value]
    return span(min(known), max(known), quantity)


def _label(gpu: GpuSeries) -> str:
    return gpu.label if gpu.state == "ok" else f"{gpu.label}, {gpu.state}"


def _scale(history: GpuRecording, quantity: Quantity) -> Kind | Scale:
    """Return the axis of all GPUs: memory up to what there is, shares up to 100 %, others as data."""
    if quantity is BUSY:
        return Scale("linear", 0.0, 100.0)
    if quantity is MEMORY:
        limit, _ = _memory_limit(history)
        return Scale("linear", 0.0, limit)
    return "linear"


def _memory_limit(history: GpuRecording) -> tuple[float, bool]:
    totals = [gpu.total_mb for gpu in history.gpus if gpu.total_mb]
    return memory_limit(history.peak("memory") or 0.0, max(totals, default=None))


def _title_over_time(history: GpuRecording, quantity: Quantity) -> str:
    if quantity is MEMORY:
        fullest = max(
            (gpu for gpu in history.gpus if "memory" in gpu.spreads),
            key=lambda gpu: gpu.spreads["memory"].peak,
        )
        return f"Memory peaks at {_of_total(fullest)}{_on(history, fullest, 'memory')}"
    if quantity is HEAT:
        return _heat(history)
    return _compared(_means(history, quantity), quantity)


def _of_total(gpu: GpuSeries) -> str:
    peak = gpu.spreads["memory"].peak / MIB_PER_GIB
    return f"{peak:.1f} of {gpu.total_mb / MIB_PER_GIB:.1f} GiB" if gpu.total_mb else f"{peak:.1f} GiB"


def _on(history: GpuRecording, first: GpuSeries, quantity: str) -> str:
    """Return which GPU it is, or that its peak is that of all."""
    peaks = [gpu.spreads[quantity].peak for gpu in history.gpus if quantity in gpu.spreads]
    if len(peaks) < 2:
        return ""
    all_of_them = "both" if len(peaks) == 2 else f"all {len(peaks)}"
    return f", alike on {all_of_them} GPUs" if are_alike(peaks) else f", on {first.label}"


def _heat(history: GpuRecording) -> str:
    """Return who was slowed down, or else the highest temperature."""
    hot = [gpu for gpu in history.gpus if "temperature" in gpu.spreads]
    slowed = [(max(gpu.slowed.values()) / gpu.num_samples, gpu) for gpu in hot if gpu.slowed]
    if slowed:
        share, worst = max(slowed, key=lambda one: one[0])
        return (
            f"{worst.label} reached {worst.spreads['temperature'].peak:.0f} °C; its clocks were held down in "
            f"{100 * share:.0f} % of the samples"
        )
    peak = f"{max(gpu.spreads['temperature'].peak for gpu in hot):.0f} °C"
    return f"No GPU was hotter than {peak}" if len(hot) > 1 else f"The GPU was not hotter than {peak}"


def _means(history: GpuRecording, quantity: Quantity) -> Mapping[str, float]:
    return {
        gpu.label: quantity.scale * gpu.spreads[quantity.name].mean
        for gpu in history.gpus
        if quantity.name in gpu.spreads
    }


def _compared(means: Mapping[str, float], quantity: Quantity) -> str:
    """Return the GPU whose mean is far from that of all (gpu.balance), or what they have in common."""
    values = list(means.values())
    one, many = quantity.verbs
    if len(values) == 1:
        return f"The GPU {one} {quantity.words(values[0])}{quantity.after}"
    mean = statistics.fmean(values)
    far = max(means, key=lambda name: (abs(means[name] - mean), -means[name]))
    if mean and abs(means[far] - mean) >= FAR * mean:
        rest = statistics.fmean(value for name, value in means.items() if name != far)
        others = "the other" if len(values) == 2 else "the others"
        return f"{far} {one} {quantity.words(means[far])}{quantity.after}, {others} {quantity.words(rest)}"
    if are_alike(values):
        all_of_them = "Both" if len(values) == 2 else f"All {len(values)}"
        return f"{all_of_them} GPUs {many} {quantity.words(mean)}{quantity.after}"
    return f"The {len(values)} GPUs {many} {span(min(values), max(values), quantity)}{quantity.after}"


def _by_gpu(history: GpuRecording, quantity: Quantity) -> RowPlot | None:
    """Return a row per GPU: of memory its mean and peak, else its mean with 5 % to 95 % of the samples."""
    gpus = [gpu for gpu in history.gpus if quantity.name in gpu.spreads]
    if not gpus:
        return None
    shown = gpus
    if len(gpus) > MOST_ROWS:
        shown = sorted(gpus, key=lambda gpu: gpu.spreads[quantity.name].mean, reverse=quantity is MEMORY)
        shown = shown[:MOST_ROWS]
    axis = _scale(history, quantity)
    assert isinstance(axis, Scale)
    has_limit = quantity is MEMORY and _memory_limit(history)[1]
    rows = []
    for gpu in shown:
        spread = gpu.spreads[quantity.name]
        mean, peak, low, high = (
            quantity.scale * value for value in (spread.mean, spread.peak, spread.low, spread.high)
        )
        if quantity is MEMORY:
            marks = [bar("thick", 0.0, mean, axis), PlotMark("point", percent(peak, axis))]
            if has_limit and gpu.total_mb:
                marks.append(PlotMark("limit", percent(gpu.total_mb / MIB_PER_GIB, axis)))
        else:
            marks = [bar("thick", low, high, axis), PlotMark("point", percent(mean, axis))]
        rows.append(MarkedRow(_label(gpu), marks, quantity.words(peak if quantity is MEMORY else mean)))
    caption = "Dot: mean over the run; bar: 5 % to 95 % of its samples."
    if quantity is MEMORY:
        caption = "Bar: mean over the run; dot and number: highest of any sample"
        caption += "; dashed: what the GPU has." if has_limit else "."
    if len(shown) < len(gpus):
        caption += f" The {len(shown)} {'fullest' if quantity is MEMORY else 'idlest'} of {len(gpus)} GPUs."
    title = _compared(_means(history, quantity), quantity)
    return RowPlot(title, caption, rows, axis.ticks(4), quantity.axis)


def _waiting(history: GpuRecording, ranks: RankBalance) -> RowPlot:
    """Return each rank's own work in a mean step by phase, and what it waits for the slowest."""
    shown = list(ranks.ranks)
    if len(shown) > MOST_ROWS:
        shown = sorted(shown, key=lambda rank: rank.seconds, reverse=True)[:MOST_ROWS]
    axis = Scale("linear", 0.0, 1020 * max(rank.seconds for rank in ranks.ranks) or 1.0)
    rows = []
    for rank in shown:
        marks, begin = [], 0.0
        for color, phase in enumerate(WORDS):
            if phase in rank.phases:
                end = begin + 1000 * rank.phases[phase]
                marks.append(bar(f"stack c{color}", begin, end, axis))
                begin = end
        words = f"{1000 * rank.seconds:.2f} ms"
        if wait := seconds_waited(rank, ranks):
            marks.append(bar("stack waits", begin, begin + 1000 * wait, axis))
            words = f"waits {100 * wait / (rank.seconds + wait):.0f} %"
        rows.append(MarkedRow(f"rank {rank.rank}", marks, "the slowest" if rank is ranks.slow else words))
    if ranks.slow:
        waits = wait_for_slow(ranks, ranks.slow).replace("%", " %")
        title = f"{waits}, slow in {ranks.slow_in}"
    else:
        title = verdict(history, ranks)
        if ranks.wasted_share < EVEN and not ranks.unproven:
            title = f"the ranks are {title}"
    caption = (
        f"Over {ranks.num_steps} recorded steps the {len(ranks.ranks)} ranks together waited "
        f"{seconds_lost(ranks):.2f} s, {100 * ranks.wasted_share:.1f} % of their time"
    )
    if ranks.unproven:
        caption += " or more"
    if len(shown) < len(ranks.ranks):
        caption += f". The {len(shown)} slowest of {len(ranks.ranks)} ranks"
    legend = [
        (words, color)
        for color, (phase, words) in enumerate(WORDS.items())
        if any(phase in rank.phases for rank in ranks.ranks)
    ]
    return RowPlot(
        title[0].upper() + title[1:],
        f"{caption}. Hatched: waiting for the slowest rank in a mean step.",
        rows,
        axis.ticks(4),
        "Own work of a mean step (ms), without communication",
        legend,
    )


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
    """Text after the number and its unit."""
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
        plot, quantity="Memory in use on all GPUs of a run (GiB)", in_words=f"{title}. Over time: {plot.alt}"
    )
