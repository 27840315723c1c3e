"""Measures a training where that is requested: times of its phases, and the use of its devices (MFU)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kharness.training.determinism import Numerics
from kharness.training.fake_tensors import Kind, ModelWithoutValues, num_samples
from kharness.training.setup import Setup
from monitoring.journal.journal import say
from monitoring.telemetry.activations import ActivationStatistics
from monitoring.telemetry.device_pool import DeviceScalar

if TYPE_CHECKING:
    from monitoring.telemetry.callback import TelemetryCallback
    from monitoring.telemetry.utilization import Utilization


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
        self._setup, self._counted, self._tokens = setup, counted, setup.tokens_per_sample
        every = options.ACTIVATION_STATISTICS_EVERY or 0 if directory else 0
        self._activations = ActivationStatistics(setup.model, every=every)
        self._callback: TelemetryCallback | None = None
        self._use: Utilization | None = None
        self._flops: dict[str, int] = {}
        self._has_warned = False
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
        self._count_once()

    @property
    def wants_record(self) -> bool:
        """Whether the latest step has a record whatever LOG_EVERY is: what was measured is of this step."""
        return bool(self._activations.measured)

    def begin_step(self, step: int) -> None:
        """A step (from 1) begins."""
        self._activations.begin_step(step)
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
        self._activations.end_step()
        if self._callback is not None:
            self._callback.on_step_end()
            if self._setup.batches.position == 0:
                self._callback.on_epoch_end()

    def measured(self, step: int, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return further fields of a step record; `record` has those so far."""
        found: dict[str, Any] = {}
        if (tokens := self._tokens) is not None:
            rate = record["samples_per_sec"]
            if isinstance(rate, DeviceScalar):
                found["tokens_per_second"] = DeviceScalar(rate.arrived, lambda: _times(rate.item(), tokens))
            else:
                found["tokens_per_second"] = _times(rate, tokens)
        found |= self._activations.measured
        if self._callback is None:
            return found
        if self._use is None:
            found |= {"step_mfu": None, "overall_mfu": None}
        else:
            seconds = self._setup.progress.clock.seconds
            found |= self._use.measured(record["sec_per_step"], seconds=seconds, steps=step, warn=self._warn)
        return {**found, **self._callback.on_log({"global_step": step, **record, **found})}

    def end(self) -> dict[str, Any]:
        """The steps have ended; what the end record has of it."""
        if self._callback is not None:
            self._callback.on_train_end()
        return dict(self._flops)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        if self._callback is None:
            return {}
        return {"timers": self._setup.world.collected(self._callback.state_dict())}

    def _count_once(self) -> None:
        """Count the FLOPs when the first inputs are there, on a copy of the model without values."""
        without_values = self._setup.unsharded_model or ModelWithoutValues(self._setup.model)

        def count(inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            with torch.random.fork_rng(devices=[]):  # no number of the training's may be used up
                is_counted = without_values.step(inputs, named) != (None, None)
            self._note(without_values if is_counted else None, samples=num_samples(inputs, named))
            self._counted()

        before_first_call(self._setup.model, count)

    def _note(self, counted: ModelWithoutValues | None, *, samples: int) -> None:
        if counted is None:
            print("MFU: not computed: the model looks at values, or returns no tensor: FLOPs are not known")
            return
        from monitoring.telemetry.utilization import Utilization, dense_flops

        setup = self._setup
        size = setup.batches.batch_size
        flops, numerics = counted.flops - counted.recomputed, setup.numerics
        of_step = round(flops.total() * size / samples)
        self._flops = {"flops_per_step": of_step}
        formula = ""
        if self._tokens is not None:
            parameters = sum(weight.numel() for weight in setup.model.parameters())
            self._flops["flops_per_step_6n"] = dense_flops(parameters, self._tokens * size)
            formula = f" (6N: {self._flops['flops_per_step_6n']:.3g})"
        device = setup.device.torch
        self._use = Utilization.of(
            by_type(flops, numerics, size / samples),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            num_devices=setup.world.size,
            hardware_flops_per_step=by_type(counted.flops, numerics, size / samples)
            if counted.recomputed
            else None,
        )
        known = "" if self._use.peak is not None else "not computed: "
        print(f"MFU: {known}{self._use.about}; {of_step:.3g} FLOPs per step{formula}", flush=True)

    def _warn(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            say(f"warning: MFU: {sentence}")


def by_type(flops: Mapping[Kind, int], numerics: Numerics, factor: float = 1.0) -> dict[str, float]:
    """FLOPs by the type that they are computed in, as monitoring.telemetry.device_peaks names types."""
    found: Counter[str] = Counter()
    for kind, count in flops.items():
        name = str(kind.dtype).removeprefix("torch.")
        if kind.dtype == torch.float32:
            name = numerics.float32_type(convolution=kind.is_convolution)
        found[name] += count
    return {name: factor * count for name, count in found.items()}


def before_first_call(
    model: torch.nn.Module, look: Callable[[tuple[Any, ...], dict[str, Any]], None]
) -> None:
    """Have `look` see the inputs of the first call in training, before that is done as any other.

    In the place of the compiled call, which a model that is not compiled has not: a hook would be compiled
    with the model, and the model a second time without it.
    """
    compiled = model._compiled_call_impl

    def call(*inputs: Any, **named: Any) -> Any:
        if model.training:
            model._compiled_call_impl = compiled
            look(inputs, named)
        usual: Callable[..., Any] = model._call_impl if compiled is None else compiled
        return usual(*inputs, **named)

    model._compiled_call_impl = call


def _times(rate: float | None, factor: int) -> float | None:
    return None if rate is None else rate * factor
