"""Writes what torch's profiler finds in some steps to files: traces, tables, memory snapshots.

    profiler = TorchProfiler(Path("results/run/profiler"), ProfilerOptions())
    for step in range(1, 101):
        profiler.begin_step(step)
        ...
    profiler.close()

Each cycle of the schedule writes one trace (Chrome's trace event format, for https://ui.perfetto.dev or
chrome://tracing) and one table per sort key, named by attempt, rank and steps, so that none replaces another.
Outside of a cycle a step costs two comparisons. Without options only `request` begins a cycle.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from monitoring.errors import MonitoringError
from monitoring.journal.atomic_file import name_beside

ROW_LIMIT = 50
"""Lines of a table."""

# The most allocations and frees that a memory snapshot tells of; each takes some hundred bytes.
SNAPSHOT_ENTRIES = 100_000

# One step before those that are requested: the first one under the profiler takes longer than others.
REQUEST_WARMUP = 1


class ProfilerError(MonitoringError):
    """The profiler cannot do what its options request."""


@dataclass(frozen=True)
class ProfilerOptions:
    """Which steps are profiled, and how; the names are those of `torch.profiler`."""

    enable_cpu_profiling: bool = True
    enable_cuda_profiling: bool = True
    """Whether GPU work is profiled; without effect on a device that is no CUDA or ROCm GPU."""
    profile_memory: bool = False
    record_shapes: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    memory_snapshot: bool = False
    """Snapshots of CUDA's allocator after each cycle and on exhausted memory (pytorch.org/memory_viz)."""
    enable_schedule: bool = True
    """Without it everything from the first step to the last is one cycle."""
    skip_first: int = 5
    """Steps of this attempt before the first cycle."""
    wait: int = 1
    """Steps of each cycle that are not profiled."""
    warmup: int = 1
    """Steps of each cycle that are profiled and thrown away."""
    active: int = 3
    """Steps of each cycle that are recorded."""
    repeat: int = 2
    """Number of cycles; 0 repeats them to the end."""

    def check(self, device: str) -> None:
        """Raise ProfilerError for options that a type of torch's devices cannot follow."""
        if self.memory_snapshot and device != "cuda":
            raise ProfilerError(
                "PROFILER_MEMORY_SNAPSHOT=y: a snapshot is of CUDA's allocator, and this training uses none",
                hint="set PROFILER_MEMORY_SNAPSHOT=n; PROFILER_PROFILE_MEMORY=y measures the CPU's memory",
            )
        if not (self.enable_cpu_profiling or (self.enable_cuda_profiling and device == "cuda")):
            raise ProfilerError(
                "PROFILER_ENABLE_CPU_PROFILING=n: nothing is left to profile without a CUDA GPU",
                hint="set PROFILER_ENABLE_CPU_PROFILING=y, or PROFILER=n",
            )


class _Profile(Protocol):
    """`torch.profiler.profile`, as far as it is used here."""

    def start(self) -> None: ...

    def step(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class _Cycle:
    """A cycle under way."""

    profile: _Profile
    first: int
    """The first step that is recorded."""
    left: int
    """Steps until it ends."""
    last: int = 0
    """The latest step that has begun."""


class TorchProfiler:
    """Writes what steps cost into a folder; results of the training stay the same bits.

    ProfilerError for options that the device cannot follow. A file that cannot be written is reported on
    standard error, once, and the training goes on.
    """

    def __init__(
        self,
        directory: Path,
        options: ProfilerOptions | None = None,
        *,
        rank: int = 0,
        attempt: int = 1,
        device: str = "cpu",
    ) -> None:
        """`device` is the type of torch's device: cuda (also ROCm's), or another."""
        self.directory = directory
        self._options = options or ProfilerOptions()
        self._is_cuda = device == "cuda"
        self._named = f"attempt{attempt:02}_rank{rank:04}"
        self._cycle: _Cycle | None = None
        self._requested = 0
        self._cycles_left = 0.0
        self._next = 0
        self._plans = options is not None
        self._is_first = True
        self._has_failed = False
        self._options.check(device)
        if self._options.memory_snapshot:
            from torch.cuda import memory

            # from the beginning: a snapshot knows the origin of recorded allocations alone
            memory._record_memory_history(max_entries=SNAPSHOT_ENTRIES)

    def request(self, steps: int) -> None:
        """Record the next `steps` steps, after one to warm up; a cycle under way ends first."""
        self._requested = steps

    def begin_step(self, step: int) -> None:
        """Begin a step, by its number (from 1) over all attempts; call it before each."""
        if self._is_first:
            self._is_first = False
            self._plan(step)
        cycle = self._cycle
        if cycle is not None:
            cycle.profile.step()
            cycle.left -= 1
            if cycle.left == 0:
                self._end()
            else:
                cycle.last = step
        # only once the cycle before has ended: torch runs one profile at a time
        if self._cycle is None and (self._requested or (self._cycles_left and step >= self._next)):
            self._begin(step)

    def close(self) -> None:
        """End the cycle that is under way, if there is one, with what it has recorded so far."""
        if self._cycle is not None:
            self._end()
        self._cycles_left = self._requested = 0

    def out_of_memory(self) -> None:
        """Write a memory snapshot, if there are any; to be called where memory was exhausted."""
        if self._options.memory_snapshot:
            self._save(f"{self._named}_out_of_memory.memory.pickle", _write_snapshot)

    def _plan(self, step: int) -> None:
        """Plan the first cycle of an attempt that begins with this step."""
        options = self._options
        if not self._plans:
            return
        if options.enable_schedule:
            self._cycles_left = options.repeat or float("inf")
            self._next = step + options.skip_first + options.wait
        else:
            self._cycles_left, self._next = 1, step

    def _begin(self, step: int) -> None:
        from torch import profiler

        options, scheduled = self._options, None
        warmup, active = REQUEST_WARMUP, self._requested
        if not self._requested:
            warmup, active = options.warmup, options.active
            self._cycles_left -= 1
            self._next = step + warmup + active + options.wait
        if self._requested or options.enable_schedule:
            scheduled = _one_cycle(warmup, active)
        else:
            warmup, active = 0, sys.maxsize
        self._requested = 0
        activities = [profiler.ProfilerActivity.CPU] if options.enable_cpu_profiling else []
        if options.enable_cuda_profiling and self._is_cuda:
            activities.append(profiler.ProfilerActivity.CUDA)
        profile = profiler.profile(
            activities=activities,
            schedule=scheduled,
            on_trace_ready=self._write,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            with_modules=options.with_modules,
        )
        self._cycle = _Cycle(profile, step + warmup, warmup + active, step)
        profile.start()

    def _end(self) -> None:
        cycle = self._cycle
        assert cycle is not None
        cycle.profile.stop()  # writes what has been recorded and was not written yet
        self._cycle = None

    def _write(self, profile: Any) -> None:
        cycle = self._cycle
        assert cycle is not None
        stem = f"{self._named}_steps{cycle.first:08}-{cycle.last:08}"
        self._save(f"{stem}.trace.json", lambda path: profile.export_chrome_trace(str(path)))
        averages = profile.key_averages(group_by_input_shape=self._options.record_shapes)
        for key in self._sort_keys():
            table = averages.table(sort_by=key, row_limit=ROW_LIMIT)
            self._save(f"{stem}.{key}.txt", partial(Path.write_text, data=table))
        if self._options.memory_snapshot:
            self._save(f"{stem}.memory.pickle", _write_snapshot)

    def _sort_keys(self) -> list[str]:
        """Return the keys that tables are sorted by: time of each device that is profiled, and memory."""
        options, is_cuda = self._options, self._is_cuda and self._options.enable_cuda_profiling
        devices = [*(["cpu"] if options.enable_cpu_profiling else []), *(["cuda"] if is_cuda else [])]
        keys = [f"{which}{device}_time_total" for device in devices for which in ("", "self_")]
        if options.profile_memory:
            keys += [f"self_{device}_memory_usage" for device in devices]
        return keys

    def _save(self, name: str, write: Callable[[Path], object]) -> None:
        """Have a file written under another name first, then renamed."""
        path = self.directory / name
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary = name_beside(path)
            try:
                write(temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:
            if not self._has_failed:
                print(f"warning: {path} cannot be written: {error}", file=sys.stderr)
            self._has_failed = True


def _one_cycle(warmup: int, active: int) -> Callable[[int], Any]:
    """Return torch.profiler.schedule's actions for one cycle; that one warns without a warmup."""
    from torch.profiler import ProfilerAction

    def action(step: int) -> ProfilerAction:
        if step < warmup:
            return ProfilerAction.WARMUP
        if step < warmup + active - 1:
            return ProfilerAction.RECORD
        return ProfilerAction.RECORD_AND_SAVE if step == warmup + active - 1 else ProfilerAction.NONE

    return action


def _write_snapshot(path: Path) -> None:
    """Write what torch.cuda.memory._dump_snapshot writes, which opens its file itself."""
    from torch.cuda import memory

    with path.open("wb") as file:
        pickle.dump(memory._snapshot(), file)


def configured_profiler(config: Mapping[str, Any]) -> ProfilerOptions | None:
    """Return the options of a configuration's PROFILER_ symbols; None without PROFILER."""
    if not config.get("PROFILER"):
        return None
    symbols = {field.name: f"PROFILER_{field.name.upper()}" for field in fields(ProfilerOptions)}
    return ProfilerOptions(**{name: config[symbol] for name, symbol in symbols.items() if symbol in config})
