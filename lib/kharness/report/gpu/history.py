"""The GPU history of a run from gpu_stats.jsonl: every GPU's curves and totals, small enough for 1,000 runs.

A run on several hosts has one such file per host: GPUs are listed by host, totals cover all hosts.
Memory is bounded however long the run was (columns).
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from kharness.report.gpu.columns import BLOCK, GpuCurve, GpuSpread, LongColumns
from monitoring.gpu.aggregates import balance, is_the_runs, runs_gpus
from monitoring.journal.files import GPU_STATS
from monitoring.journal.ranks import sample_journals
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import read_rotated

# What is read of each sample, by the names in reports.
QUANTITIES = {
    "memory": "memory_used_mb",
    "utilization": "utilization_percent",
    "power": "power_draw_watts",
    "temperature": "temperature_celsius",
}

READ = tuple(QUANTITIES.values())
NAN = math.nan

# Of the run's GPUs of a sample together: sums, and the hottest.
TOGETHER = {
    "memory": "total_memory_used_mb",
    "power": "total_power_watts",
    "temperature": "max_temperature_celsius",
}

# Quantities that have a mean besides the peak.
SUMMED = ("memory", "power")

# Seconds after which what a host said last no longer counts into the sums of all hosts.
STALE = 60.0

# What stays the same about a GPU.
LASTING = ("index", "uuid", "name", "memory_total_mb")

# Reasons for lower clocks that heat and power supply give; the others are choices or idleness.
SLOWED = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")


@dataclass(frozen=True)
class GpuSeries:
    """One GPU over a run."""

    index: int
    uuid: str | None
    name: str | None
    host: str
    num_samples: int
    total_mb: float | None
    several_hosts: bool
    """Whether the run has GPUs of other hosts, too."""
    curves: Mapping[str, GpuCurve]
    """Curves by quantity, for those it reports."""
    spreads: Mapping[str, GpuSpread]
    energy_joules: float | None
    """Energy used by the run, in joules."""
    run_share: float
    """Mean share of the GPU that was the run's; 1 if no other process computed on it."""
    state: str
    """At its last sample."""
    error: str | None
    has_answered: bool
    """Whether it ever did, also while it was not known to be the run's."""
    outages: Sequence[tuple[float, float | None]]
    """Start and end of not answering, in seconds since the run's first sample; None: to the end."""
    slowed: Mapping[str, int]
    """Samples in which heat or the power supply held the clocks down, by reason."""

    @property
    def label(self) -> str:
        return f"GPU {self.index} on {self.host}" if self.several_hosts else f"GPU {self.index}"


@dataclass(frozen=True)
class GpuRecording:
    """The GPUs of a run, and the others of its machine."""

    started: float = 0.0
    """Time of the first sample, UTC epoch seconds."""
    seconds: float = 0.0
    """Seconds from the first sample to the last."""
    num_samples: int = 0
    gpus: Sequence[GpuSeries] = ()
    """GPUs of the run, over the samples that have them."""
    others: Sequence[GpuSeries] = ()
    """GPUs that were sampled and never the run's."""
    devices_source: str | None = None
    """How it is known which are the run's (monitoring.gpu.run_devices); None of a recording that has all."""
    are_unknown: bool = False
    """Whether it was not known at the end which are the run's, on some host: nothing then showed it."""
    together: Mapping[str, GpuCurve] = field(default_factory=dict)
    """Memory and power of the run's GPUs, and the temperature of the hottest."""
    totals: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Mean memory and power of the run's GPUs together, while most of them reported it, and how many did."""
    peak_memory_mb: float | None = None
    """The most that the run's GPUs together used at one moment."""
    energy_joules: float | None = None
    energy_source: str | None = None
    cost: float | None = None
    unmeasured_seconds: float | None = None
    """Seconds without samples, of the host that lacks most."""

    def __bool__(self) -> bool:
        return bool(self.gpus)

    def means(self, quantity: str) -> list[float]:
        """Return the mean of each GPU that reports the quantity, by index."""
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
    """Read the history of a run directory; empty without samples. Rotated files are read in order."""
    files = sample_journals(directory, GPU_STATS).values()
    reader = _Reader()
    for _, source, record in heapq.merge(*map(_records, range(len(files)), files), key=itemgetter(0)):
        reader.add(record, source)
    return reader.history()


def _records(source: int, path: Path) -> Iterator[tuple[float, int, Record]]:
    """Yield the samples of a host with their times, and the number of its file."""
    for record in read_rotated(path):
        if record.get("event") == "gpu":
            yield float(str(record["time"])), source, record


class _Samples:
    """Samples of one GPU."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.last: dict[str, Any] = {}
        self.columns = LongColumns(QUANTITIES)
        self.share = 0.0
        self.energy: float | None = None
        self.outages: list[tuple[float, float | None]] = []
        self.slowed: Counter[str] = Counter()
        self._state = "ok"
        self._energy_before = 0.0

    def add(self, gpu: Mapping[str, Any], times: Sequence[float]) -> None:
        """The same at each of some times."""
        for name in LASTING:
            value = gpu.get(name)
            if value is not None:  # a GPU that is lost when sampling begins has no name any more
                self.last[name] = value
        self.last["state"], self.last["error"] = gpu.get("state", "ok"), gpu.get("error")
        self.columns.add(times, [NAN if (value := gpu.get(name)) is None else value for name in READ])
        share = gpu.get("run_share")
        share = 1.0 if share is None else share
        for _ in times:
            self.share += share
        energy = gpu.get("energy_joules")
        if energy is not None:
            # By increments, since the run's share of the GPU differs from sample to sample.
            self.energy = (self.energy or 0.0) + share * max(0.0, energy - self._energy_before)
            self._energy_before = energy
        self._follow(self.last["state"], times[0])
        reasons = gpu.get("throttle_reasons")
        if reasons:
            self.slowed.update({reason: len(times) for reason in reasons if reason in SLOWED})

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
        self._answered: set[tuple[str, int]] = set()
        self._clocks: dict[int, _Clock] = {}
        self._until = -math.inf
        self._seen: dict[int, float] = {}  # sources that sample now, and until when
        self._together = LongColumns(TOGETHER)
        self._totals = {quantity: _Total() for quantity in SUMMED}
        self._peak_memory: float | None = None
        self._last: dict[int, Mapping[str, Any]] = {}
        self._reporting: dict[int, Mapping[str, int]] = {}

    def add(self, record: Mapping[str, Any], source: int) -> None:
        """Add a record; one that stands for several samples counts as that many, evenly spaced over its time.

        `source` is the number of the file that has it, as each host has its own.
        """
        times = self._clocks.setdefault(source, _Clock()).times(record)
        host = str(record.get("host") or "")
        for gpu in record["multi_gpu_data"]:
            held = self._own if is_the_runs(gpu) else self._others
            key = self._key(host, gpu)
            if key not in held:
                held[key] = _Samples(host)
            held[key].add(gpu, times)
            if held[key].last["state"] == "ok":
                self._answered.add((host, gpu["index"]))
        self._last[source] = record["aggregate_stats"]
        times = [max(time, self._until) for time in times]  # another host's clock may be ahead
        self._until = self._seen[source] = times[-1]
        for gone in [it for it, seen in self._seen.items() if self._until - seen > STALE]:
            del self._seen[gone]
        values = {quantity: self._of_all_hosts(name) for quantity, name in TOGETHER.items()}
        self._together.add(times, list(values.values()))
        if not math.isnan(memory := values["memory"]):
            self._peak_memory = max(memory, self._peak_memory or memory)
        own = runs_gpus(record)
        self._reporting[source] = {
            quantity: sum(gpu.get(QUANTITIES[quantity]) is not None for gpu in own) for quantity in SUMMED
        }
        for quantity, total in self._totals.items():
            reporting = sum(self._reporting[it][quantity] for it in self._seen)
            total.add(values[quantity], len(times), reporting)

    def _of_all_hosts(self, name: str) -> float:
        """The sum of what hosts said last, of temperatures the highest; NaN where no host says anything."""
        known = [float(value) for it in self._seen if (value := self._last[it].get(name)) is not None]
        if not known:
            return NAN
        return max(known) if name == TOGETHER["temperature"] else sum(known)

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
        if not self._together.num_rows:
            return GpuRecording()
        started = min(clock.started for clock in self._clocks.values())
        totals = list(self._last.values())
        several = len({host for host, _ in self._own}) > 1
        others = [samples for key, samples in self._others.items() if key not in self._own]
        return GpuRecording(
            started=started,
            seconds=max(clock.last for clock in self._clocks.values()) - started,
            num_samples=max(clock.num_samples for clock in self._clocks.values()),
            gpus=sorted((self._gpu(it, started, several) for it in self._own.values()), key=_place),
            others=sorted((self._gpu(it, started, several) for it in others), key=_place),
            devices_source=_least_sure(totals),
            are_unknown=any(one.get("devices", ()) is None for one in totals),
            together=self._together.curves(started),
            totals={
                name: found
                for name, total in self._totals.items()
                if (found := total.while_most()) is not None
            },
            peak_memory_mb=self._peak_memory,
            energy_joules=sum_known(totals, "energy_joules"),
            energy_source="+".join(sorted(_energy_sources(totals))) or None,
            cost=sum_known(totals, "cost"),
            unmeasured_seconds=max(
                (value for one in totals if (value := one.get("unmeasured_seconds")) is not None),
                default=None,
            ),
        )

    def _gpu(self, samples: _Samples, started: float, several_hosts: bool) -> GpuSeries:
        last = samples.last
        return GpuSeries(
            index=last["index"],
            uuid=last.get("uuid"),
            name=last.get("name"),
            host=samples.host,
            num_samples=samples.columns.num_rows,
            several_hosts=several_hosts,
            total_mb=last.get("memory_total_mb"),
            curves=samples.columns.curves(started),
            spreads=samples.columns.spreads(),
            energy_joules=samples.energy,
            run_share=samples.share / samples.columns.num_rows,
            state=last["state"],
            error=last["error"],
            has_answered=(samples.host, last["index"]) in self._answered,
            outages=[(a - started, None if b is None else b - started) for a, b in samples.outages],
            slowed=dict(samples.slowed),
        )


def sum_known(totals: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Over the last totals of each host; None where no host has the number."""
    known = [value for one in totals if (value := one.get(name)) is not None]
    return sum(known) if known else None


def _energy_sources(totals: Sequence[Mapping[str, Any]]) -> set[str]:
    return {source for one in totals for source in (one.get("energy_source") or "").split("+")} - {""}


def _least_sure(totals: Sequence[Mapping[str, Any]]) -> str | None:
    """How it is known which GPUs are the run's, of the host where that is known worst."""
    sources = [one.get("devices_source") for one in totals]
    return next((source for source in sources if source != "processes"), sources[0])


class _Clock:
    """When samples were taken, if the clock had not been set back meanwhile."""

    def __init__(self) -> None:
        self.started = 0.0
        self.last = -math.inf
        self.num_samples = 0
        self._distance = 0.0  # of the last two samples
        self._set_back = 0.0

    def times(self, record: Mapping[str, Any]) -> list[float]:
        """Return the time of each sample in a record; never earlier than those of the record before."""
        samples, time = record.get("samples", 1), float(record["time"])
        self.num_samples += samples
        distance = max(0.0, record["until"] - time) / (samples - 1) if samples > 1 else 0.0
        if self.last == -math.inf:
            self.started = time
        # NTP or an administrator set the clock back: later samples are shifted to follow the last one at the
        # usual distance, as a curve must not run backwards.
        if time + self._set_back < self.last:
            self._set_back = self.last + self._distance - time
        begins = time + self._set_back
        times = [begins + i * distance for i in range(samples)]
        before = times[-2] if samples > 1 else self.last
        self._distance = times[-1] - before if before != -math.inf else 0.0
        self.last = times[-1]
        return times


class _Total:
    """The mean over the samples in which most GPUs reported a value: it is at most the peak of all."""

    def __init__(self) -> None:
        self._values = array("d")
        self._most, self._n, self._sum = 0, 0, 0.0

    def add(self, value: float, times: int, num_reporting: int) -> None:
        # A GPU that joins later makes the sum larger for no other reason, so the mean starts again.
        if num_reporting > self._most:
            self._most, self._n, self._sum = num_reporting, 0, 0.0
            del self._values[:]
        if num_reporting == self._most:
            self._values.extend([value] * times)
            if len(self._values) >= BLOCK:
                self._fold()

    def while_most(self) -> tuple[float, int] | None:
        """The mean while most GPUs reported, and how many these are; None if none ever did."""
        self._fold()
        return (self._sum / self._n, self._most) if self._most else None

    def _fold(self) -> None:
        self._sum += float(np.frombuffer(self._values).sum()) if self._values else 0.0
        self._n += len(self._values)
        self._values = array("d")


def _place(gpu: GpuSeries) -> tuple[str, int]:
    return gpu.host, gpu.index
