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

from monitoring.gpu.aggregates import balance, is_the_runs, runs_gpus
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

# Of the run's GPUs of a sample together: sums, and the hottest.
TOGETHER = {
    "memory": "total_memory_used_mb",
    "power": "total_power_watts",
    "temperature": "max_temperature_celsius",
}

# Of these there is a mean beside the peak.
SUMMED = ("memory", "power")

# What stays the same about a GPU.
LASTING = ("index", "uuid", "name", "memory_total_mb")

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
    """The run's share of it."""
    run_share: float
    """The mean share of its time that was the run's; 1 if nobody else computed on it."""
    state: str
    """At its last sample."""
    error: str | None
    outages: Sequence[tuple[float, float | None]]
    """From when until when it did not answer, in seconds since the run's first sample; None: to the end."""
    slowed: Mapping[str, int]
    """Samples in which heat or the power supply held the clocks down, by reason."""

    @property
    def label(self) -> str:
        return f"GPU {self.index}"

    @property
    def gone(self) -> list[float]:
        """When it was lost or failed."""
        return [start for start, _ in self.outages]


@dataclass(frozen=True)
class GpuRecording:
    """The GPUs of a run, and the others of its machine."""

    started: float = 0.0
    """Of the first sample, UTC epoch seconds."""
    seconds: float = 0.0
    """From the first sample to the last."""
    num_samples: int = 0
    gpus: Sequence[GpuSeries] = ()
    """Those of the run, over the samples in which they were."""
    others: Sequence[GpuSeries] = ()
    """GPUs that were sampled and never the run's."""
    devices_source: str | None = None
    """How it is known which are the run's (monitoring.gpu.run_devices); None of a recording that has all."""
    together: Mapping[str, GpuCurve] = field(default_factory=dict)
    """Memory and power of the run's GPUs, and the temperature of the hottest."""
    totals: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Mean memory and power of the run's GPUs together, while most of them reported it, and how many did."""
    peak_memory_mb: float | None = None
    """The most that the run's GPUs together used at one moment."""
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

    def __init__(self, host: str) -> None:
        self.host = host
        self.last: dict[str, Any] = {}
        self.times = array("d")
        self.columns = {quantity: array("d") for quantity in QUANTITIES}
        self.share = 0.0
        self.energy: float | None = None
        self.outages: list[tuple[float, float | None]] = []
        self.slowed: Counter[str] = Counter()
        self._state = "ok"
        self._energy_before = 0.0

    def add(self, gpu: Mapping[str, Any], time: float) -> None:
        for name in LASTING:  # a GPU that is lost when sampling begins has no name any more
            if gpu.get(name) is not None:
                self.last[name] = gpu[name]
        self.last |= {"state": gpu.get("state", "ok"), "error": gpu.get("error")}
        self.times.append(time)
        for quantity, name in QUANTITIES.items():
            value = gpu.get(name)
            self.columns[quantity].append(math.nan if value is None else value)
        share = gpu.get("run_share")
        share = 1.0 if share is None else share
        self.share += share
        energy = gpu.get("energy_joules")
        if energy is not None:
            self.energy = (self.energy or 0.0) + share * max(0.0, energy - self._energy_before)
            self._energy_before = energy
        self._follow(self.last["state"], time)
        reasons = gpu.get("throttle_reasons")
        if reasons:
            self.slowed.update(reason for reason in reasons if reason in SLOWED)

    def _follow(self, state: str, time: float) -> None:
        if state != "ok" and self._state == "ok":
            self.outages.append((time, None))
        elif state == "ok" and self._state != "ok":
            self.outages[-1] = self.outages[-1][0], time
        self._state = state


class _Reader:
    """Adds up the records of a run."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, object], _Samples] = {}
        self._others: dict[tuple[str, object], _Samples] = {}
        self._uuids: dict[tuple[str, int], str] = {}
        self._times = array("d")
        self._together = {quantity: array("d") for quantity in TOGETHER}
        self._counts = {quantity: array("d") for quantity in SUMMED}
        self._last: Mapping[str, Any] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Of an old record that stands for several in a row, as many, evenly over their time."""
        samples, begins = record.get("samples", 1), float(record["time"])
        distance = (record["until"] - begins) / (samples - 1) if samples > 1 else 0.0
        for i in range(samples):
            self._add(record, begins + i * distance)

    def _add(self, record: Mapping[str, Any], time: float) -> None:
        host = str(record.get("host") or "")
        for gpu in record["multi_gpu_data"]:
            held = self._own if is_the_runs(gpu) else self._others
            key = self._key(host, gpu)
            if key not in held:
                held[key] = _Samples(host)
            held[key].add(gpu, time)
        self._last = record["aggregate_stats"]
        self._times.append(time)
        for quantity, name in TOGETHER.items():
            value = self._last.get(name)
            self._together[quantity].append(math.nan if value is None else value)
        own = runs_gpus(record)
        for quantity, counts in self._counts.items():
            counts.append(sum(gpu.get(QUANTITIES[quantity]) is not None for gpu in own))

    def _key(self, host: str, gpu: Mapping[str, Any]) -> tuple[str, object]:
        """One that is lost when sampling begins tells no UUID: it is the GPU that has its index."""
        place, uuid = (host, gpu["index"]), gpu.get("uuid")
        if uuid and place not in self._uuids:
            for held in (self._own, self._others):
                if place in held:
                    held[host, uuid] = held.pop(place)
        if uuid:
            self._uuids[place] = uuid
        return (host, self._uuids[place]) if place in self._uuids else place

    def history(self) -> GpuRecording:
        if not self._times:
            return GpuRecording()
        started = self._times[0]
        memory = np.frombuffer(self._together["memory"])
        known = memory[~np.isnan(memory)]
        others = [samples for key, samples in self._others.items() if key not in self._own]
        return GpuRecording(
            started=started,
            seconds=max(self._times) - started,
            num_samples=len(self._times),
            gpus=sorted((_gpu(samples, started) for samples in self._own.values()), key=_place),
            others=sorted((_gpu(samples, started) for samples in others), key=_place),
            devices_source=self._last.get("devices_source"),
            together={
                name: curve
                for name, values in self._together.items()
                if (curve := _curve(self._times, values, started))
            },
            totals={
                name: total
                for name, counts in self._counts.items()
                if (total := _total(self._together[name], counts)) is not None
            },
            peak_memory_mb=float(known.max()) if len(known) else None,
            energy_joules=self._last.get("energy_joules"),
            energy_source=self._last.get("energy_source"),
            cost=self._last.get("cost"),
        )


def _total(values: array[float], counts: array[float]) -> tuple[float, int] | None:
    """The mean over the samples in which most GPUs reported it: it is at most the peak of all."""
    most = max(counts)
    if not most:
        return None
    return float(np.frombuffer(values)[np.frombuffer(counts) == most].mean()), int(most)


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
        total_mb=last.get("memory_total_mb"),
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
        run_share=samples.share / len(samples.times),
        state=last["state"],
        error=last["error"],
        outages=[(a - started, None if b is None else b - started) for a, b in samples.outages],
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
