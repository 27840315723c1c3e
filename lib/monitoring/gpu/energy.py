"""Energy of GPUs: what each used since it was first sampled.

Where a GPU has an energy counter, the differences of the counter count, also over seconds without
samples; else power is integrated between samples, and seconds without samples stay unmeasured. A
counter that stands still while the GPU draws power counts as one that is not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from monitoring.gpu.sample import SLOT, GpuSample

Source = Literal["counter", "integrated"]

# Two samples further apart than this many intervals, and than this many seconds, leave a gap between them.
GAP_INTERVALS = 3.0
GAP_SECONDS = 5.0

# Seconds of drawn power after which a counter that did not move is not believed. Drivers add to theirs at
# least ten times a second.
STANDSTILL_SECONDS = 5.0


# What is filled in, side by side in a sample.
ENERGY = slice(SLOT["energy_joules"], SLOT["energy_source"] + 1)


class Used(NamedTuple):
    """Energy that some GPUs used between two looks."""

    seconds: float
    is_gap: bool
    """Whether that is so long that samples were missed meanwhile."""
    joules: Sequence[float | None]
    """Energy of each sample's GPU; None where nothing is known."""
    silent: Collection[int]
    """Indices of GPUs that did not answer, or did not tell their energy and power as they had before."""
    standing: Sequence[GpuSample]
    """Samples of those whose counter was now found to stand still."""
    moving: Sequence[GpuSample] = ()
    """Samples of GPUs whose counter had stood still and moves again."""


@dataclass
class _GpuEnergy:
    """Energy of one GPU so far, and its last sample in this attempt."""

    joules: float | None = None
    source: Source | None = None
    counter: float | None = None
    power: float | None = None
    bridged: float = 0.0
    """Joules integrated since the counter last moved, which it will report once more."""
    still_seconds: float = 0.0
    """Seconds with drawn power since the counter last moved."""
    still_joules: float = 0.0
    """Energy of these seconds, by power."""
    stands_still: bool = False
    """Whether the counter is reported and not believed."""


class EnergyMeter:
    """Adds up what the samples say of each GPU. Begin a new one for each attempt of a run, and resume it."""

    def __init__(self, *, interval: float = 1.0, started: float) -> None:
        """`started` is when the attempt began; times are in seconds of one clock that every call uses."""
        self._longest = max(GAP_INTERVALS * interval, GAP_SECONDS)
        self._time = started
        self._gpus: dict[str, _GpuEnergy] = {}

    def resume(self, record: Mapping[str, Any], *, same_attempt: bool) -> None:
        """Continue after the last gpu record of the run; of the same attempt, its counters go on."""
        for gpu in record["multi_gpu_data"]:
            state = _GpuEnergy(gpu["energy_joules"], gpu["energy_source"])
            if same_attempt:
                state.counter = gpu["energy_counter_joules"]
                state.power = gpu["power_draw_watts"]
                state.stands_still = state.source == "integrated" and state.counter is not None
            self._gpus[_key(gpu["uuid"], gpu["index"])] = state
        if same_attempt:
            self._time = record["time"]

    def measure(self, samples: Sequence[GpuSample], now: float) -> tuple[list[GpuSample], Used]:
        """Return the samples with `energy_joules` and its source, and what was used since the last look."""
        seconds = max(0.0, now - self._time)
        self._time = now
        is_gap = seconds > self._longest
        measured, joules, silent, standing, moving = [], [], [], [], []
        for sample in samples:
            gpu = self._gpus.setdefault(_key(sample.uuid, sample.index), _GpuEnergy())
            before, stood = gpu.joules, gpu.stands_still
            tells = sample.energy_counter_joules is not None or sample.power_draw_watts is not None
            if sample.state != "ok" or (gpu.source is not None and not tells):
                silent.append(sample.index)
            _add(gpu, sample, seconds, is_gap=is_gap)
            joules.append(None if gpu.joules is None else gpu.joules - (before or 0.0))
            values = [*sample]  # _replace takes four times as long
            values[ENERGY] = gpu.joules, gpu.source
            measured.append(GpuSample._make(values))
            if gpu.stands_still and not stood:
                standing.append(measured[-1])
            elif stood and not gpu.stands_still:
                moving.append(measured[-1])
        return measured, Used(seconds, is_gap, joules, silent, standing, moving)


def _add(gpu: _GpuEnergy, sample: GpuSample, seconds: float, *, is_gap: bool) -> None:
    """Add what a GPU used since its last sample."""
    counter, power = sample.energy_counter_joules, sample.power_draw_watts
    by_power = 0.0
    if gpu.power is not None and power is not None and not is_gap:
        # the trapezoidal rule: power is taken to move evenly from sample to sample
        by_power = (gpu.power + power) / 2 * seconds
    if counter is not None and counter != gpu.counter:
        gpu.still_seconds = gpu.still_joules = 0.0
        gpu.stands_still = False
    elif by_power and gpu.counter is not None:
        gpu.still_seconds += seconds
        gpu.still_joules += by_power
    gpu.stands_still |= counter is not None and gpu.still_seconds >= STANDSTILL_SECONDS
    if counter is not None and not gpu.stands_still:
        gpu.source = "counter"
        if counter != gpu.counter:
            used = counter - gpu.counter if gpu.counter is not None else 0.0
            # a counter that fell starts from zero, with its driver; what it had counted since is not known
            gpu.joules = (gpu.joules or 0.0) + max(0.0, used - gpu.bridged)
            gpu.counter, gpu.bridged = counter, 0.0
    elif power is not None:
        gpu.source = "integrated"
        # after a standstill all power since the counter last moved counts, each joule once
        used = by_power if gpu.counter is None else gpu.still_joules - gpu.bridged
        gpu.joules = (gpu.joules or 0.0) + used
        gpu.bridged += used if gpu.counter is not None else 0.0
    if sample.state == "ok":
        gpu.power = power
    elif counter is None:
        gpu.power = None  # nothing is known of the time until it comes back, unless a counter reports it


def _key(uuid: str | None, index: int) -> str:
    return uuid if uuid is not None else f"#{index}"
