"""Energy, GPU hours and cost of a run: what its share of its GPUs came to, over all of its attempts.

What the GPUs use between two attempts is not the run's. As long as it is not known which GPUs are the run's,
what each would add is kept aside, and counts from the attempt's beginning once it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.gpu.energy import Used
from monitoring.gpu.run_devices import Shares
from monitoring.gpu.sample import GpuSample


@dataclass
class _Sum:
    """Joules and GPU seconds; None as long as nothing is known of them."""

    joules: float | None = None
    gpu_seconds: float | None = None

    def add(self, joules: float | None, gpu_seconds: float | None) -> None:
        if joules is not None:
            self.joules = (self.joules or 0.0) + joules
        if gpu_seconds is not None:
            self.gpu_seconds = (self.gpu_seconds or 0.0) + gpu_seconds


class RunSums:
    """Adds up one run. Begin a new one for each agent and attempt, and resume it."""

    def __init__(self, *, hour_price: float = 0.0) -> None:
        """`hour_price` is that of one GPU for one hour, 0 for none."""
        self._price = hour_price
        self._run = _Sum()
        self._kept: dict[int, _Sum] = {}
        self._sources: set[str] = set()
        self._unmeasured = 0.0

    def resume(self, totals: Mapping[str, Any]) -> None:
        """Continue after the `aggregate_stats` of the run's last gpu record."""
        hours = totals["gpu_hours"]
        self._run = _Sum(totals["energy_joules"], None if hours is None else 3600.0 * hours)
        self._sources = set((totals["energy_source"] or "").split("+")) - {""}
        self._unmeasured = totals["unmeasured_seconds"] or 0.0

    def add(self, samples: Sequence[GpuSample], used: Used, shares: Shares) -> dict[str, Any]:
        """Add what the GPUs of `samples` used, and return the totals of the run."""
        own = shares.of if shares.source is not None else ()
        is_silent = any(index in own for index in used.silent)
        self._unmeasured += used.seconds if used.is_gap or is_silent else 0.0
        for sample, joules in zip(samples, used.joules, strict=True):
            share = shares.of.get(sample.index)
            if share is None:
                continue
            known = self._run
            if shares.source is None:
                known = self._kept.setdefault(sample.index, _Sum())
            elif sample.energy_source is not None:
                self._sources.add(sample.energy_source)
            known.add(None if joules is None else share * joules, share * used.seconds)
        if shares.source is not None:
            for index, kept in self._kept.items():
                if index in shares.of:
                    self._run.add(kept.joules, kept.gpu_seconds)
            # what was kept of other GPUs is not the run's
            self._kept.clear()
        return self._totals()

    def _totals(self) -> dict[str, Any]:
        seconds = self._run.gpu_seconds
        hours = None if seconds is None else seconds / 3600
        return {
            "energy_joules": self._run.joules,
            "energy_source": "+".join(sorted(self._sources)) or None,
            "gpu_hours": hours,
            "cost": hours * self._price if hours is not None and self._price else None,
            "unmeasured_seconds": self._unmeasured,
        }
