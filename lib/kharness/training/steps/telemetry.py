"""Measures steps where that is requested: times of their phases, activations, tokens per second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.training.mfu import ModelUse
from kharness.training.setup import Setup
from monitoring.telemetry.activations import ActivationStatistics
from monitoring.telemetry.device_pool import DeviceScalar

if TYPE_CHECKING:
    from monitoring.telemetry.callback import TelemetryCallback


class StepTelemetry:
    """Tokens per second of text, activations if requested; with INCLUDE_PERFORMANCE_METRICS the files of
    telemetry/, and MFU.
    """

    def __init__(
        self,
        setup: Setup[Any],
        *,
        directory: Path | None = None,
        timed: Sequence[Mapping[str, Any]] = (),
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        """Measure what is requested for the run in `directory`; without one only the tokens.

        `timed` are the states of all ranks in a checkpoint. `counted` is called when the FLOPs were counted,
        which is no work of a step.
        """
        options = setup.options
        self._setup = setup
        every = options.ACTIVATION_STATISTICS_EVERY or 0 if directory else 0
        self.activations = ActivationStatistics(setup.model, every=every)
        """Statistics of the latest step, if any: it then has a record whatever LOG_EVERY is."""
        self._callback: TelemetryCallback | None = None
        self._use: ModelUse | None = None
        if directory is None or not options.INCLUDE_PERFORMANCE_METRICS:
            return
        from monitoring.telemetry.callback import TelemetryCallback  # here: most trainings need none

        self._callback = TelemetryCallback(
            directory,
            world_process_zero_only=bool(options.WORLD_PROCESS_ZERO_ONLY),
            include_timer_metrics=bool(options.INCLUDE_TIMER_METRICS),
            track_gpu_temperature=bool(options.TRACK_GPU_TEMPERATURE),
            rank=setup.world.rank,
            device=setup.device.torch if setup.device.torch.type == "cuda" else None,
        )
        if setup.world.rank < len(timed):
            self._callback.load_state_dict(timed[setup.world.rank])
        self._use = ModelUse(setup, counted=counted)

    def begin_step(self, step: int) -> None:
        """A step (from 1) begins."""
        self.activations.begin_step(step)
        if self._callback is not None:
            batches = self._setup.batches
            if batches.position == 1 or batches.steps_per_epoch == 1:  # it is the place of the next step
                self._callback.on_epoch_begin()
            self._callback.on_step_begin()

    def end_part(self) -> None:
        """A micro-batch that is not the last of its step has ended."""
        if self._callback is not None:
            self._callback.on_substep_end()

    def end_step(self) -> None:
        """A step has ended."""
        self.activations.end_step()
        if self._callback is not None:
            self._callback.on_step_end()
            if self._setup.batches.position == 0:
                self._callback.on_epoch_end()

    def measured(self, step: int, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return further fields of a step record; `record` has those so far."""
        found: dict[str, Any] = dict(self.activations.measured)
        if tokens := self._setup.tokens_per_sample:
            rate = record["samples_per_sec"]
            if isinstance(rate, DeviceScalar):
                found["tokens_per_second"] = DeviceScalar(rate.arrived, lambda: _times(rate.item(), tokens))
            else:
                found["tokens_per_second"] = _times(rate, tokens)
        if self._callback is None or self._use is None:
            return found
        found |= self._use.measured(record["sec_per_step"], steps=step)
        return {**found, **self._callback.on_log({"global_step": step, **record, **found})}

    def end(self) -> dict[str, Any]:
        """The steps have ended; what the end record has of it."""
        if self._callback is not None:
            self._callback.on_train_end()
        return self._use.flops if self._use else {}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        if self._callback is None:
            return {}
        return {"timers": self._setup.world.collected(self._callback.state_dict())}


def _times(rate: float | None, factor: int) -> float | None:
    return None if rate is None else rate * factor
