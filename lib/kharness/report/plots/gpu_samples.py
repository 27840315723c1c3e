"""GPU samples of the runs of a report: which runs have any, their quantities in words, and the axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kharness.report.collection import CellResult
from kharness.report.curves import Strand
from kharness.report.gpu.columns import GpuCurve
from kharness.report.gpu.history import GpuRecording
from kharness.report.summary import Summary

MIB_PER_GIB = 1024

Cell = str | int | float | None

# Of what there is at least so much must be in use, or the axis ends above what is used.
SHOWN_SHARE = 0.3


@dataclass(frozen=True)
class Sampled:
    """A run that has GPU samples."""

    variant: str
    cell: CellResult

    @property
    def history(self) -> GpuRecording:
        return self.cell.gpus


def sampled(summary: Summary) -> list[Sampled]:
    """Return the runs with samples by variant, in the order of the plan."""
    return [
        Sampled(variant.label, cell) for variant in summary.variants for cell in variant.cells if cell.gpus
    ]


def applies(summary: Summary) -> bool:
    """Whether a run has GPU samples: other matrices need no picture that says so."""
    return any(cell.gpus for cell in summary.cells)


def without_samples(summary: Summary) -> list[str]:
    return [cell.name for cell in summary.cells if not cell.gpus]


def point_rows(about: Sequence[Cell], curve: GpuCurve) -> Iterator[Sequence[Cell]]:
    """Rows of a CSV, one per drawn point: what it is `about`, seconds, mean and peak; a gap is null."""
    for second, *values in zip(curve.seconds, curve.means, curve.peaks, strict=True):
        yield [*about, second, *(None if math.isnan(value) else value for value in values)]


def time_unit(runs: Sequence[Sampled]) -> tuple[float, str]:
    """Return the seconds of a unit in which no tick needs more than three digits, and its axis's label."""
    longest = max((run.history.seconds for run in runs), default=0.0)
    seconds, unit = (1, "seconds") if longest < 300 else (60, "minutes")
    if longest >= 300 * 60:
        seconds, unit = 3600, "hours"
    return seconds, f"{unit} since the run's first sample"


def memory_limit(peak_mb: float, total_mb: float | None) -> tuple[float, bool]:
    """Where the memory axis ends, in GiB, and whether what there is lies on it."""
    if total_mb and peak_mb >= SHOWN_SHARE * total_mb:
        return 1.06 * total_mb / MIB_PER_GIB, True
    return 1.25 * peak_mb / MIB_PER_GIB or 1.0, False


LIMIT_NOTE = "Dashed: the memory that a GPU has."


def limit_beside(line: Strand, has: float) -> Strand:
    """Return a line at what there is, as long as the line that must not reach it."""
    return Strand("", -1, "limit", (line.xs[0], line.xs[-1]), (has, has))


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


def strand_of(label: str, color: int, curve: GpuCurve, unit: float, scale: float) -> Strand:
    """Return a line of means, in the area from the lowest sample to the highest; `unit` is in seconds."""
    means, lows, highs = ([scale * one for one in some] for some in (curve.means, curve.lows, curve.peaks))
    return Strand(label, color, "mean", [one / unit for one in curve.seconds], means, lows, highs)


def span(low: float, high: float, quantity: Quantity) -> str:
    """`200 to 220 W`; one number where both round to it."""
    ends = [f"{value:,.{quantity.digits}f}" for value in (low, high)]
    return f"{' to '.join(dict.fromkeys(ends))} {quantity.unit}"


def are_alike(values: Sequence[float]) -> bool:
    """Whether nothing stands out."""
    return max(values) - min(values) <= _ALIKE * max(values)
