"""The curves of a single run: everything that it recorded more than once, whatever program wrote it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from kharness.config.writing import ABSENT, Table
from kharness.report.curves import Kind, Strand
from kharness.report.plots.plot import Plot, plot_of
from kharness.report.runs import WALL_TIMES
from monitoring.journal.series import RunSeries, SeriesInfo

# Points of a line; its area holds every record.
_BUCKETS = 160
_MOST_PLOTS = 30
_LOSSES = (("train_loss", "val_loss"), ("loss", "eval_loss"), ("train/loss", "val/loss"))
_FIRST = (
    *("val_accuracy", "eval_accuracy", "lr", "learning_rate", "grad_norm", "samples_per_sec"),
    *("tokens_per_sec", "sec_per_step", "gpu_mem_reserved", "cpu_mem_rss_mb"),
)
_TITLES = {
    "lr": "learning rate",
    "grad_norm": "gradient norm",
    "cpu_mem_rss_mb": "memory of the process (MB)",
    "samples_per_sec": "throughput (samples/s)",
    "sec_per_step": "time per step",
    "tokens_per_sec": "throughput (tokens/s)",
    "val_accuracy": "validation accuracy",
}
_DRAWN_TIMES = frozenset({"sec_per_step"})
_HIDDEN = frozenset(
    {
        "best",
        "checkpoint_bytes",
        "epoch",
        "first_step",
        "global_step",
        "gpu_mem_allocated",
        "nan_inf_detected",
        "steps_done",
    }
)


def read_series(directory: Path) -> RunSeries:
    """Return all series of a run directory, read to their end."""
    series = RunSeries(directory)
    while series.refresh():
        pass
    return series


def plots_of_run(series: RunSeries) -> Sequence[Plot]:
    """Return a plot of each metric: the losses first, then what most trainings record."""
    known = {name: info for name, info in series.metrics.items() if _is_drawn(name, info)}
    found: list[tuple[str, str, list[Strand], Kind]] = []
    for pair in _LOSSES:
        both = [name for name in pair if name in known]
        if both:
            strands = [
                one for i, name in enumerate(both) for one in _strands(series, known.pop(name), i, len(both))
            ]
            found.append(("loss", "Loss", strands, "log"))
    ordered = [name for name in _FIRST if name in known] + [name for name in known if name not in _FIRST]
    for name in ordered[: _MOST_PLOTS - len(found)]:
        scale: Kind = "log" if name == "grad_norm" or "loss" in name else "linear"
        found.append((name, _title(name, known[name]), _strands(series, known[name], 0, 1), scale))
    return [
        plot_of(name, title, strands, scale=scale)
        for name, title, strands, scale in found
        if any(strand.ys for strand in strands)
    ]


def last_numbers(series: RunSeries) -> Table | None:
    """Return the last, lowest and highest value of every metric; None without any."""
    rows = [
        [name, _unit(info), *map(_number, (info.last, info.min, info.max)), f"{info.count:,}"]
        for name, info in series.metrics.items()
        if name == info.field and info.field not in _HIDDEN and info.field not in WALL_TIMES - _DRAWN_TIMES
    ]
    header = ["metric", "unit", "last", "lowest", "highest", "records"]
    return Table(header, rows, text_columns=2) if rows else None


def _is_drawn(name: str, info: SeriesInfo) -> bool:
    varies = info.count > 1 and info.min is not None and info.min != info.max
    times = info.field in WALL_TIMES and info.field not in _DRAWN_TIMES
    # The same field of a record of another kind, such as the mean of an epoch, is NAME@KIND.
    own = name == info.field and info.kind not in ("end", "checkpoint")
    return varies and own and not times and info.field not in _HIDDEN


def _strands(series: RunSeries, info: SeriesInfo, color: int, lines: int) -> list[Strand]:
    window = series.window(info.name, key=info.keys[0], buckets=_BUCKETS)
    rows = [
        (x, last, low, high)
        for x, last, low, high in zip(window.x_last, window.last, window.min, window.max, strict=True)
        if math.isfinite(last) and math.isfinite(low)
    ]
    if not rows:
        return []
    xs, lasts, lows, highs = (list(column) for column in zip(*rows, strict=True))
    label = info.field if lines > 1 else ""
    dots = info.kind in ("eval", "epoch") and len(xs) <= _BUCKETS // 4
    area = [] if window.exact else [Strand(label, color, "area", xs, (), lows, highs)]
    return [*area, Strand(label, color, "mean", xs, lasts, dots=dots)]


def _title(name: str, info: SeriesInfo) -> str:
    words = _TITLES.get(name, name.replace("_", " "))
    words = words[:1].upper() + words[1:]
    unit = _unit(info)
    return words if "(" in words or not unit else f"{words} ({unit})"


def _unit(info: SeriesInfo) -> str:
    """Return a unit without its definition; empty for a metric of one's own, whose unit is unknown."""
    unit = info.unit.partition(",")[0]
    return "" if "unknown" in unit else unit


def _number(value: float | None) -> str:
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.5g}"
