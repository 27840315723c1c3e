"""Timers and readings of a training of yours: what takes how long, on this rank and across all.

telemetry = TelemetryTracker()
for step, batch in enumerate(loader):
    with telemetry.cuda_timer("forward_pass"):
        outputs = model(batch)
    with telemetry.timer("backward_pass"):
        loss_of(outputs, batch).backward()
    if step % 100 == 0:
        telemetry.print_summary()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitoring.host.correlation import own_local_rank
from monitoring.host.name import host_name
from monitoring.telemetry.device_pool import POOL, DevicePool
from monitoring.telemetry.measurements import Measurements
from monitoring.telemetry.pace import Stopwatch
from monitoring.telemetry.process_group import gathered, has_process_group, own_rank
from monitoring.telemetry.summaries import (
    Names,
    Summary,
    compared_ranks,
    cross_rank_text,
    read_summaries,
    summary_text,
    timer_statistics,
)
from monitoring.telemetry.timers import CudaTimer, Timer, host_timer, off_timer

if TYPE_CHECKING:
    from monitoring.gpu.sample import Sampler


class TelemetryTracker:
    """Measures on this rank; its memory does not grow with what it has measured.

    Nothing waits for a GPU: a CUDA timer counts what the GPU has done by now.
    """

    timer: Callable[[str], Timer]
    """`with telemetry.timer("name"):`, or above a function: by this process's clock."""
    cuda_timer: Callable[[str], Timer]
    """Timer by the GPU's clock, of the work that is queued within; without a GPU it measures nothing."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        directory: Path | None = None,
        rank: int | None = None,
        device: Any = None,
        pool: DevicePool | None = None,
    ) -> None:
        """One that is not `enabled` measures nothing.

        `device` is the GPU of this rank, as torch names it (`cuda:1`), by default torch's current one
        (torch.cuda.set_device), which is the first on every rank of a script that sets none.
        `directory` is where ranks leave their summaries (TelemetryCallback writes them) for those without
        torch.distributed. `pool` lends the events of a GPU, by default where torch sees one.
        """
        self._directory = directory
        self._rank = rank
        self._device = device
        self._pool = pool
        self._clock = Stopwatch()
        self._clock.start()
        self._timers: dict[str, Measurements] = {}
        self._cuda: dict[str, Measurements] = {}
        self._cuda_timers: dict[str, CudaTimer] = {}
        self._unmeasured: dict[str, None] = {}
        self._memory: dict[str, Measurements] = {}
        self._temperature = Measurements()
        self._off = off_timer()
        # Looked up in C, as often as a training takes a step; a name that is new is made by __missing__.
        self.timer = _Made(self._new_timer if enabled else self._no_timer).__getitem__
        self.cuda_timer = _Made(self._new_cuda_timer if enabled else self._no_timer).__getitem__
        self._enabled = enabled

    def record_time(self, name: str, seconds: float) -> None:
        """Take in a duration that was measured elsewhere, under the name of a timer."""
        if self._enabled:
            found = self._timers.get(name)
            if found is None:  # only then: to make one costs more than all the rest
                found = self._timers.setdefault(name, Measurements())
            found.add(seconds)

    def log_gpu_memory(self) -> dict[str, float] | None:
        """Record torch's allocated, reserved and peak memory, in GB (1e9 bytes).

        Returns them; None, and nothing is taken in, without a GPU.
        """
        found = gpu_memory(self._device) if self._enabled else None
        for name, value in (found or {}).items():
            self._memory.setdefault(name, Measurements()).add(value)
        return found

    def record_gpu_temperature(self) -> float | None:
        """Take in the temperature of this process's GPU in degrees Celsius, by its driver.

        Returns it; None, and nothing is taken in, where no driver says so.
        """
        found = gpu_temperature(self._device) if self._enabled else None
        if found is not None:
            self._temperature.add(found)
        return found

    def get_summary(self) -> dict[str, Any]:
        """Return all measurements in seconds, GB and degrees Celsius; None where one was not possible.

        `hostname`, `rank`, `total_time`; by name in `timers` and `cuda_timers` their `count`, `mean`,
        `median`, `std_dev`, `min`, `max`, `total`, `percentage` of the total time, and where the median
        comes from; `gpu_memory` and `gpu_temperature` in the same way.
        """
        for timer in self._cuda_timers.values():
            timer.take_passed()
        total_time = self._clock.seconds
        memory = {name: found.statistics() for name, found in self._memory.items()}
        temperature = self._temperature.statistics()
        return {
            "hostname": host_name(),
            "rank": own_rank() if self._rank is None else self._rank,
            "total_time": total_time,
            "timers": _by_name(self._timers, total_time),
            "cuda_timers": {**self._unmeasured, **_by_name(self._cuda, total_time)},
            "gpu_memory": {**memory, "peak": memory["peak"]["max"]} if memory else None,
            "gpu_temperature": temperature if temperature["count"] else None,
        }

    def print_summary(self) -> None:
        """Print what this rank has measured."""
        print(summary_text(self.get_summary()), flush=True)

    def get_summaries_from_all_ranks(self) -> list[dict[str, Any]]:
        """Return the summary of each rank, in their order.

        With torch.distributed all ranks call this, and wait for each other. Without it they are those that
        the ranks have left in `directory`, this one's as it is now; without either only this one's.
        """
        own = self.get_summary()
        return gathered(own) if has_process_group() else self.left_by_ranks(own)

    def left_by_ranks(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """Return this rank's summary and those that the others have left; no rank waits for another one."""
        others = read_summaries(self._directory) if self._directory is not None else {}
        by_rank = {**others, own["rank"]: own}
        return [by_rank[rank] for rank in sorted(by_rank)]

    def compute_cross_rank_summaries(
        self, rank_summaries: Sequence[Summary] | None = None, *, measurement_names: Names | None = None
    ) -> dict[str, Any]:
        """Compare the ranks: mean, std_dev, min, max and median of their statistics, and which have them.

        `measurement_names` chooses, as `{"timers": {"forward": ("mean",)}, "gpu_temperature": ("max",)}`;
        by default all. A rank that has no such number is listed in `missing_ranks`. Without
        `rank_summaries` they are those of get_summaries_from_all_ranks.
        """
        summaries = self.get_summaries_from_all_ranks() if rank_summaries is None else rank_summaries
        return compared_ranks(summaries, measurement_names)

    def print_cross_rank_summary(
        self, rank_summaries: Sequence[Summary] | None = None, *, measurement_names: Names | None = None
    ) -> None:
        """Print how the ranks differ."""
        found = self.compute_cross_rank_summaries(rank_summaries, measurement_names=measurement_names)
        print(cross_rank_text(found), flush=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint keeps, of JSON types; without what a GPU has still to do."""
        for timer in self._cuda_timers.values():
            timer.take_passed()
        return {
            "total_time": self._clock.seconds,
            "timers": _states(self._timers),
            "cuda_timers": _states(self._cuda),
            "gpu_memory": _states(self._memory),
            "gpu_temperature": self._temperature.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as a resumed training does: from there on, without the time between."""
        for cuda_timer in self._cuda_timers.values():
            cuda_timer.forget()
        for found, states in (
            (self._timers, state["timers"]),
            (self._cuda, state["cuda_timers"]),
            (self._memory, state["gpu_memory"]),
        ):
            # a name without a saved state begins at nothing: its times are of steps that are done again
            for name in {**found, **states}:
                of_name = found.setdefault(name, Measurements())
                of_name.load_state_dict(states.get(name) or Measurements().state_dict())
        self._temperature.load_state_dict(state["gpu_temperature"])
        self._clock = Stopwatch(state["total_time"])
        self._clock.start()

    def _new_timer(self, name: str) -> Timer:
        return host_timer(self._timers.setdefault(name, Measurements()))

    def _new_cuda_timer(self, name: str) -> Timer:
        pool = self._pool or (POOL if has_cuda() else None)
        if pool is None:
            self._unmeasured[name] = None
            return self._off
        timer = self._cuda_timers[name] = CudaTimer(
            self._cuda.setdefault(name, Measurements()),
            pool,
            "cuda" if self._device is None else self._device,
        )
        return timer

    def _no_timer(self, name: str) -> Timer:
        return self._off


class _Made(dict[str, Timer]):
    """Timers by name, each made when it is first looked up."""

    def __init__(self, made: Callable[[str], Timer]) -> None:
        self._new = made

    def __missing__(self, name: str) -> Timer:
        timer = self[name] = self._new(name)
        return timer


def _by_name(measured: Mapping[str, Measurements], total_time: float) -> dict[str, Any]:
    return {
        name: timer_statistics(found.statistics(), found.total, total_time)
        for name, found in list(measured.items())
    }


def _states(measured: Mapping[str, Measurements]) -> dict[str, Any]:
    return {name: found.state_dict() for name, found in measured.items()}


_GB = 1e9


def has_cuda() -> bool:
    """Whether this process computes on a GPU: torch is imported, and has begun to use CUDA."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def gpu_memory(device: Any = None) -> dict[str, float] | None:
    """GB (1e9 bytes) `allocated` and `reserved` now, and the `peak` of allocated; None without a GPU.

    As torch.cuda.memory_allocated, memory_reserved and max_memory_allocated count, of the torch.device, by
    default torch's current one; nothing waits for the GPU.
    """
    if not has_cuda():
        return None
    cuda = sys.modules["torch"].cuda
    return {
        "allocated": cuda.memory_allocated(device) / _GB,
        "reserved": cuda.memory_reserved(device) / _GB,
        "peak": cuda.max_memory_allocated(device) / _GB,
    }


def gpu_temperature(device: Any = None) -> float | None:
    """Degrees Celsius of the torch.device, by default of this process's GPU; None where no driver says so."""
    sampler = _sampler()
    if sampler is None:
        return None
    number = _own_device(device)
    places = [place for place, gpu in enumerate(sampler.devices()) if gpu.visible_index == number]
    return sampler.sample()[places[0]].temperature_celsius if places else None


def _own_device(device: Any) -> int:
    """Return N of `cuda:N`: the device's own, else of the one that this process computes on."""
    said = str(device).rpartition(":")[2]
    if said.isdecimal():
        return int(said)
    if has_cuda():
        number: int = sys.modules["torch"].cuda.current_device()
        return number
    return own_local_rank() or 0


@cache
def _sampler() -> Sampler | None:
    """Open the samplers once per process: a driver takes up to a second for it."""
    from monitoring.samplers import probe_all  # here: most processes read no temperature

    return probe_all()[0]
