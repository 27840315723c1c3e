"""Times each phase of a training (microsteps, steps, epochs) and leaves what it found in files.

It knows no framework: a loop, or an adapter to a trainer's callbacks, calls its methods.

telemetry = TelemetryCallback(run.directory, include_timer_metrics=True)
for step, batch in enumerate(loader, 1):
    telemetry.on_step_begin()
    …
    telemetry.on_step_end()
    if step % 10 == 0:
        run.log_step(step, **metrics, **telemetry.on_log({"step": step, **metrics}))
telemetry.on_train_end()
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.journal.encoding.tensors import host_number, is_tensor
from monitoring.journal.files import TELEMETRY, TELEMETRY_ALL_RANKS, TELEMETRY_TEMPERATURES, telemetry_name
from monitoring.journal.journal import say
from monitoring.telemetry.device_pool import DeviceScalar
from monitoring.telemetry.measurements import STATISTICS
from monitoring.telemetry.process_group import own_rank
from monitoring.telemetry.summaries import Summary, compared_ranks, write_json
from monitoring.telemetry.tracker import TelemetryTracker

MICROSTEPS, STEPS, EPOCHS = "microsteps", "steps", "epochs"
"""The phases: a forward and backward pass, an update with all of its microsteps, and a pass over the data."""

# Which statistics of the phases and of the temperature become metrics.
AS_METRICS = ("mean", "max")

# Seconds between two writes of the files, however often a training logs.
WRITE_EVERY = 1.0


class TelemetryCallback:
    """Writes DIRECTORY/telemetry/ at each log interval, at most once a second, and at the end.

    Nothing is raised: a file that the disk does not take is reported once, and written at the next interval.
    """

    def __init__(
        self,
        directory: Path,
        *,
        world_process_zero_only: bool = True,
        include_timer_metrics: bool = False,
        track_gpu_temperature: bool = False,
        rank: int | None = None,
        device: Any = None,
        write_every: float = WRITE_EVERY,
    ) -> None:
        """`directory` is that of the run.

        With `world_process_zero_only` ranks above 0 measure nothing; without it rank 0 also writes what all
        ranks have found. `rank` is by default torch.distributed's, or the launcher's, and `device` torch's
        current GPU.
        """
        self.rank = own_rank() if rank is None else rank
        self._is_off = world_process_zero_only and self.rank > 0
        self._of_all_ranks = not world_process_zero_only
        self._includes_metrics = include_timer_metrics
        self._tracks_temperature = track_gpu_temperature
        self._write_every = write_every
        self._folder = Path(directory) / TELEMETRY
        self.tracker = TelemetryTracker(
            enabled=not self._is_off, directory=self._folder, rank=self.rank, device=device
        )
        """The timers and readings; a training may time phases of its own with it."""
        self._since: dict[str, float] = {}
        self._metrics: dict[str, Any] = {}
        self._next_write = 0.0
        self._has_failed = False

    def on_epoch_begin(self) -> None:
        """Begin a pass over the data."""
        self._since[EPOCHS] = time.perf_counter()

    def on_step_begin(self) -> None:
        """Begin a step, and its first microstep."""
        self._since[STEPS] = self._since[MICROSTEPS] = time.perf_counter()

    def on_substep_begin(self) -> None:
        """Begin a microstep here, where the one before did not end just now."""
        self._since[MICROSTEPS] = time.perf_counter()

    def on_substep_end(self) -> None:
        """End a microstep that is not the last of its step, and begin the next."""
        now = time.perf_counter()
        self._end(MICROSTEPS, now)
        self._since[MICROSTEPS] = now

    def on_step_end(self) -> None:
        """End a step, with its last microstep."""
        now = time.perf_counter()
        self._end(MICROSTEPS, now)
        self._end(STEPS, now)

    def on_epoch_end(self) -> None:
        """End a pass over the data."""
        self._end(EPOCHS, time.perf_counter())

    def on_log(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """End a log interval: write the files, if the last ones are a second old.

        `metrics` are those of the training. Returns what is to be logged with them: with
        `include_timer_metrics`, where files were written, `rank000_steps_mean` and so on.
        """
        now = time.monotonic()
        if self._is_off:
            return {}
        self._metrics = dict(metrics)
        if now < self._next_write:
            return {}
        self._next_write = now + self._write_every
        return self._write()

    def on_train_end(self) -> None:
        """End the training: write the files with all there is.

        With torch.distributed ranks above 0 wait here for each other, unless rank 0 alone measures.
        """
        if not self._is_off:
            self._since.clear()  # a step or an epoch that was broken off is none
            self._write(waits=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint keeps of this rank."""
        return self.tracker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the times that a checkpoint has of this rank."""
        self.tracker.load_state_dict(state)

    def _end(self, phase: str, now: float) -> None:
        since = self._since.pop(phase, None)
        if since is not None:
            self.tracker.record_time(phase, now - since)

    def _write(self, *, waits: bool = False) -> dict[str, float]:
        if self._tracks_temperature:
            self.tracker.record_gpu_temperature()
        summary = self.tracker.get_summary()
        self._write_file(
            telemetry_name("metrics", self.rank),
            {key: _plain(value) for key, value in self._metrics.items()},
        )
        self._write_file(telemetry_name("", self.rank), summary)
        summaries = [summary]
        if self._of_all_ranks and waits:
            summaries = self.tracker.get_summaries_from_all_ranks()
        elif self._of_all_ranks and self.rank == 0:
            summaries = self.tracker.left_by_ranks(summary)
        if self.rank == 0:
            if self._of_all_ranks:
                of_ranks = {f"rank{each['rank']:04}": each for each in summaries}
                self._write_file(TELEMETRY_ALL_RANKS, of_ranks)
            if self._tracks_temperature:
                names = {"gpu_temperature": STATISTICS}
                self._write_file(TELEMETRY_TEMPERATURES, compared_ranks(summaries, names))
        return self._as_metrics(summary) if self._includes_metrics else {}

    def _as_metrics(self, summary: Summary) -> dict[str, float]:
        found = {**summary["timers"], "gpu_temperature": summary["gpu_temperature"] or {}}
        return {
            f"rank{self.rank:03}_{name}_{each}": of_name[each]
            for name, of_name in found.items()
            for each in AS_METRICS
            if of_name.get(each) is not None
        }

    def _write_file(self, name: str, content: Mapping[str, Any]) -> None:
        try:
            try:
                write_json(self._folder / name, content)
            # made when it is needed, and again if it was removed
            except FileNotFoundError:
                self._folder.mkdir(parents=True, exist_ok=True)
                write_json(self._folder / name, content)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                say(f"warning: {self._folder / name}: {error.strerror or error}; training continues")


def _plain(value: object) -> object:
    """Return a value as JSON takes it; None for a number still on a GPU, and for any other object."""
    try:
        if isinstance(value, DeviceScalar):
            value = value.item() if value.arrived() else None
        elif is_tensor(value):
            value = host_number(value)
    except Exception:  # noqa: BLE001 - a tensor without memory, a device that failed: whatever torch raises
        return None
    return value if isinstance(value, (int, float, str, type(None))) else None
