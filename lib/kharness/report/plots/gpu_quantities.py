"""Quantities of GPUs that are drawn, with their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kharness.report.curves import Strand
from kharness.report.gpu.columns import GpuCurve
from kharness.report.graphs._gpu_lines import MIB_PER_GIB, TimeUnit

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
