"""The GPUs of a run or of a matrix, drawn by the page: each picture's title is what it shows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kharness.report.collection import CellResult
from kharness.report.curves import Kind, Scale, Strand
from kharness.report.gpu.balance import FAR, seconds_lost, seconds_waited, verdict, wait_for_slow
from kharness.report.gpu.columns import MAX_POINTS
from kharness.report.gpu.history import GpuRecording, GpuSeries
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
    span,
    strand_of,
    time_unit,
)
from kharness.report.plots.gpu_variants import OF_VARIANTS, of_variants, over_time
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, plot_of, range_of
from kharness.report.plots.rows import (
    MOST_ROWS,
    MarkedRow,
    PlotMark,
    RowPlot,
    bar,
    mean_of_complete,
    mean_row,
    percent,
)
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
        rows = [of_variants(summary, one) for one in OF_VARIANTS]
        return [plot for plot in (*rows, over_time(summary, MEMORY)) if plot]
    cell = summary.cells[0]
    history, (ranks, _) = cell.gpus, cell.ranks
    several = len(history.gpus) > 1
    wanted: list[GpuPlot | None] = [
        by_gpu(history, BUSY) if several else of_run(cell, BUSY),
        waiting(history, ranks) if ranks else None,
        of_run(cell, MEMORY),
        by_gpu(history, MEMORY) if several else None,
        of_run(cell, POWER),
        of_run(cell, HEAT),
    ]
    return [plot for plot in wanted if plot]


def of_run(cell: CellResult, quantity: Quantity) -> Plot | None:
    """Return a line per GPU, in its range; of many GPUs the highest and lowest, and the others' range."""
    history = cell.gpus
    lines = [(gpu, curve) for gpu in history.gpus if (curve := gpu.curves.get(quantity.name))]
    if not lines:
        return None
    chosen, behind = lines, []
    if len(lines) > MOST_IN_COLOR:
        lowest, *behind, highest = sorted(lines, key=lambda line: line[0].spreads[quantity.name].mean)
        chosen = [highest, lowest]
    unit, label = time_unit([Sampled("", cell)])
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
        LIMIT_NOTE: limit,
        "In color: the GPU with the highest and the one with the lowest mean; the others in gray.": others,
        "Of long recordings a point is a mean; areas reach from the lowest sample to the highest.": (
            history.num_samples > MAX_POINTS
        ),
    }
    plot = plot_of(
        f"gpu_{quantity.name}",
        title,
        [*limit, *range_of(others), *own],
        x_label=label,
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
    return [limit_beside(beside, total)]


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


def by_gpu(history: GpuRecording, quantity: Quantity, most: int = MOST_ROWS) -> RowPlot | None:
    """Return a row per GPU: of memory its mean and peak, else its mean with 5 % to 95 % of the samples."""
    gpus = [gpu for gpu in history.gpus if quantity.name in gpu.spreads]
    if not gpus:
        return None
    shown = gpus
    if len(gpus) > most:
        shown = sorted(gpus, key=lambda gpu: gpu.spreads[quantity.name].mean, reverse=quantity is MEMORY)
        shown = shown[:most]
    axis = _scale(history, quantity)
    if not isinstance(axis, Scale):
        axis = Scale("linear", 0.0, 1.05 * max(gpu.spreads[quantity.name].high for gpu in gpus) or 1.0)
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


def over_runs(runs: Sequence[Sampled], quantity: Quantity, most: int) -> RowPlot | None:
    """Return a row per GPU of several runs: a dot per run, a bar to the mean of the complete ones."""
    found: dict[str, list[tuple[bool, float]]] = {}
    for run in runs:
        for gpu in run.history.gpus:
            if spread := gpu.spreads.get(quantity.name):
                own = (run.cell.run.complete, quantity.scale * spread.mean)
                found.setdefault(gpu.label, []).append(own)
    if not found:
        return None
    means = {label: mean_of_complete(own) for label, own in found.items()}
    highest = max(value for own in found.values() for _, value in own)
    axis = Scale("linear", 0.0, 100.0 if quantity is BUSY else 1.05 * highest or 1.0)
    rows = [mean_row(label, own, axis, quantity.words) for label, own in [*found.items()][:most]]
    caption = "Dot: mean of a run; bar: mean of the complete runs."
    if len(rows) < len(found):
        caption += f" The first {most} of {len(found)} GPUs."
    return RowPlot(_compared(means, quantity), caption, rows, axis.ticks(4), quantity.axis)


def waiting(history: GpuRecording, ranks: RankBalance, most: int = MOST_ROWS) -> RowPlot:
    """Return each rank's own work in a mean step by phase, and what it waits for the slowest."""
    shown = list(ranks.ranks)
    if len(shown) > most:
        shown = sorted(shown, key=lambda rank: rank.seconds, reverse=True)[:most]
    # in milliseconds, with a fiftieth of room behind the longest
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
