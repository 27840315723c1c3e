"""What gpu_stats.jsonl says of a run: every GPU's curves and totals, small enough for a thousand runs.

A curve keeps at most MAX_POINTS means (and the peak within each); numbers are of all samples.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monitoring.gpu.aggregates import balance
from monitoring.journal.files import GPU_STATS
from monitoring.journal.rotating_journal import read_rotated

# As many as a line in a picture can show.
MAX_POINTS = 160

# What is read of each sample, by the names in reports.
QUANTITIES = {
    "memory": "memory_used_mb",
    "utilization": "utilization_percent",
    "power": "power_draw_watts",
    "temperature": "temperature_celsius",
}

# Of all GPUs of a sample together: sums, and the hottest.
TOGETHER = {
    "memory": "total_memory_used_mb",
    "power": "total_power_watts",
    "temperature": "max_temperature_celsius",
}

# Two samples further apart than so many seconds, and than so many median distances, break a curve.
GAP_SECONDS = 5.0
GAP_INTERVALS = 3.0

# Reasons for lower clocks that heat and power supply give; the others are choices or idleness.
SLOWED = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")


@dataclass(frozen=True)
class GpuCurve:
    """A quantity over time: seconds since the run's first sample, NaN where nothing is known."""

    seconds: Sequence[float] = ()
    means: Sequence[float] = ()
    peaks: Sequence[float] = ()

    def __bool__(self) -> bool:
        return any(not math.isnan(value) for value in self.means)


@dataclass(frozen=True)
class GpuSpread:
    """One number over all samples that have it."""

    n: int
    mean: float
    std: float
    """Population standard deviation over time."""
    peak: float
    low: float
    """Below it are 5 % of the samples."""
    high: float
    """Above it are 5 %."""


@dataclass(frozen=True)
class GpuSeries:
    """One GPU over a run."""

    index: int
    uuid: str | None
    name: str | None
    host: str
    num_samples: int
    total_mb: float | None
    curves: Mapping[str, GpuCurve]
    """By quantity; those that it reports."""
    spreads: Mapping[str, GpuSpread]
    energy_joules: float | None
    state: str
    """At its last sample."""
    error: str | None
    gone: Sequence[float]
    """When it was lost or failed, in seconds since the run's first sample."""
    slowed: Mapping[str, int]
    """Samples in which heat or the power supply held the clocks down, by reason."""

    @property
    def label(self) -> str:
        return f"GPU {self.index}"


@dataclass(frozen=True)
class GpuRecording:
    """All GPUs of a run."""

    started: float = 0.0
    """Of the first sample, UTC epoch seconds."""
    seconds: float = 0.0
    """From the first sample to the last."""
    num_samples: int = 0
    gpus: Sequence[GpuSeries] = ()
    together: Mapping[str, GpuCurve] = field(default_factory=dict)
    """Memory and power of all GPUs, and the temperature of the hottest."""
    peak_memory_mb: float | None = None
    """The most that all GPUs together used at one moment."""
    energy_joules: float | None = None
    energy_source: str | None = None
    cost: float | None = None

    def __bool__(self) -> bool:
        return bool(self.gpus)

    def means(self, quantity: str) -> list[float]:
        """Of each GPU that reports it, by index."""
        return [gpu.spreads[quantity].mean for gpu in self.gpus if quantity in gpu.spreads]

    def balance(self, quantity: str) -> tuple[float | None, str | None]:
        """CV in percent of the GPUs' means over the run, and its band; None where nothing is shared."""
        found = balance(self.means(quantity))
        cv, quality = found["cv"], found["quality"]
        return (cv, quality) if isinstance(cv, float) and isinstance(quality, str) else (None, None)

    def mean(self, quantity: str) -> float | None:
        """Over the GPUs' means."""
        means = self.means(quantity)
        return sum(means) / len(means) if means else None

    def peak(self, quantity: str) -> float | None:
        """The highest of any GPU."""
        return max((gpu.spreads[quantity].peak for gpu in self.gpus if quantity in gpu.spreads), default=None)


def read_gpu_history(directory: Path) -> GpuRecording:
    """Of a run directory; an empty one without samples. Rotated files are read in their order."""
    path = directory / GPU_STATS
    if not path.exists():
        return GpuRecording()
    reader = _Reader()
    for record in read_rotated(path):
        if record.get("event") == "gpu":
            reader.add(record)
    return reader.history()


class _Samples:
    """What one GPU reported, one column per quantity; NaN is not reported."""

    def __init__(self, gpu: Mapping[str, Any], host: str) -> None:
        self.last = gpu
        self.host = host
        self.times = array("d")
        self.columns = {quantity: array("d") for quantity in QUANTITIES}
        self.total_mb: float | None = None
        self.energy: float | None = None
        self.gone: list[float] = []
        self.slowed: Counter[str] = Counter()
        self._state = "ok"

    def add(self, gpu: Mapping[str, Any], time: float) -> None:
        self.last = gpu
        self.times.append(time)
        for quantity, name in QUANTITIES.items():
            value = gpu.get(name)
            self.columns[quantity].append(math.nan if value is None else value)
        if gpu.get("memory_total_mb") is not None:
            self.total_mb = gpu["memory_total_mb"]
        if gpu.get("energy_joules") is not None:
            self.energy = gpu["energy_joules"]
        state = gpu.get("state", "ok")
        if state != "ok" and self._state == "ok":
            self.gone.append(time)
        self._state = state
        reasons = gpu.get("throttle_reasons")
        if reasons:
            self.slowed.update(reason for reason in reasons if reason in SLOWED)


class _Reader:
    """Adds up the records of a run."""

    def __init__(self) -> None:
        self._gpus: dict[tuple[str, object], _Samples] = {}
        self._times = array("d")
        self._together = {quantity: array("d") for quantity in TOGETHER}
        self._last: Mapping[str, Any] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        time, host = float(record["time"]), str(record.get("host") or "")
        for gpu in record["multi_gpu_data"]:
            key = host, gpu.get("uuid") or gpu["index"]
            samples = self._gpus.get(key)
            if samples is None:
                samples = self._gpus[key] = _Samples(gpu, host)
            samples.add(gpu, time)
        self._last = record["aggregate_stats"]
        self._times.append(time)
        for quantity, name in TOGETHER.items():
            value = self._last.get(name)
            self._together[quantity].append(math.nan if value is None else value)

    def history(self) -> GpuRecording:
        if not self._times:
            return GpuRecording()
        started = self._times[0]
        memory = np.frombuffer(self._together["memory"])
        known = memory[~np.isnan(memory)]
        return GpuRecording(
            started=started,
            seconds=max(self._times) - started,
            num_samples=len(self._times),
            gpus=sorted((_gpu(samples, started) for samples in self._gpus.values()), key=_place),
            together={
                name: curve
                for name, values in self._together.items()
                if (curve := _curve(self._times, values, started))
            },
            peak_memory_mb=float(known.max()) if len(known) else None,
            energy_joules=self._last.get("energy_joules"),
            energy_source=self._last.get("energy_source"),
            cost=self._last.get("cost"),
        )


def _place(gpu: GpuSeries) -> tuple[str, int]:
    return gpu.host, gpu.index


def _gpu(samples: _Samples, started: float) -> GpuSeries:
    last = samples.last
    return GpuSeries(
        index=last["index"],
        uuid=last.get("uuid"),
        name=last.get("name"),
        host=samples.host,
        num_samples=len(samples.times),
        total_mb=samples.total_mb,
        curves={
            quantity: curve
            for quantity, values in samples.columns.items()
            if (curve := _curve(samples.times, values, started))
        },
        spreads={
            quantity: spread
            for quantity, values in samples.columns.items()
            if (spread := _spread(values)) is not None
        },
        energy_joules=samples.energy,
        state=last.get("state", "ok"),
        error=last.get("error"),
        gone=[time - started for time in samples.gone],
        slowed=dict(samples.slowed),
    )


def _spread(values: array[float]) -> GpuSpread | None:
    every = np.frombuffer(values)
    known = every[~np.isnan(every)]
    if not len(known):
        return None
    low, high = np.percentile(known, (5, 95))
    return GpuSpread(
        n=len(known),
        mean=float(known.mean()),
        std=float(known.std()),
        peak=float(known.max()),
        low=float(low),
        high=float(high),
    )


def _curve(times: array[float], values: array[float], started: float) -> GpuCurve:
    """Means over so many samples that MAX_POINTS are left; broken where nobody sampled."""
    seconds, every = np.frombuffer(times) - started, np.frombuffer(values)
    size = max(1, math.ceil(len(every) / MAX_POINTS))
    distances = np.diff(seconds)
    median = float(np.median(distances)) if len(distances) else 0.0
    breaks = np.flatnonzero(distances > max(GAP_SECONDS, GAP_INTERVALS * median)) + 1
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for i, part in enumerate(np.split(np.arange(len(every)), breaks)):
        if i:  # the line ends before a gap and begins after it
            _extend(found, [float(seconds[part[0]])], [math.nan], [math.nan])
        for start in range(0, len(part), size):
            own = part[start : start + size]
            known = every[own][~np.isnan(every[own])]
            mean, peak = (float(known.mean()), float(known.max())) if len(known) else (math.nan, math.nan)
            _extend(found, [float(seconds[own].mean())], [mean], [peak])
    return GpuCurve(*found)


def _extend(found: tuple[list[float], ...], *columns: list[float]) -> None:
    for whole, more in zip(found, columns, strict=True):
        whole.extend(more)
