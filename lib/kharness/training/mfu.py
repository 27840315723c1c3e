"""Model FLOPs utilization (MFU) of a training, whose FLOPs are counted when its first inputs are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from kharness.training.determinism import Numerics
from kharness.training.fake_tensors import Kind, ModelWithoutValues, num_samples
from kharness.training.setup import Setup

if TYPE_CHECKING:
    from monitoring.telemetry.utilization import Utilization


class ModelUse:
    """`step_mfu` and `overall_mfu` of step records, None where the FLOPs cannot be counted."""

    def __init__(self, setup: Setup[Any], *, counted: Callable[[], None]) -> None:
        """`counted` is called when the FLOPs were counted, which is no work of a step."""
        self.flops: dict[str, int] = {}
        """For the end record: `flops_per_step` and, of text, `flops_per_step_6n`."""
        self._setup = setup
        self._use: Utilization | None = None
        model = setup.unsharded_model or ModelWithoutValues(setup.model)

        def count(inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            with torch.random.fork_rng(devices=[]):  # no number of the training's may be used up
                is_counted = model.step(inputs, named) != (None, None)
            if is_counted:
                self._note(model, samples=num_samples(inputs, named))
            else:
                why = "the model looks at values, or returns no tensor"
                print(f"MFU: not computed: {why}: FLOPs are not known")
            counted()

        before_first_call(setup.model, count)

    def measured(self, step_seconds: Any, *, steps: int) -> dict[str, Any]:
        """The fields of the record after so many steps."""
        if self._use is None:
            return {"step_mfu": None, "overall_mfu": None}
        seconds = self._setup.progress.clock.seconds
        return self._use.measured(step_seconds, seconds=seconds, steps=steps, warn=self._warn)

    def _note(self, counted: ModelWithoutValues, *, samples: int) -> None:
        from monitoring.telemetry.utilization import OneWarning, Utilization, dense_flops

        self._warn = OneWarning()
        setup, size, tokens = self._setup, self._setup.batches.batch_size, self._setup.tokens_per_sample
        flops, numerics = counted.flops - counted.recomputed, setup.numerics
        self.flops = {"flops_per_step": round(flops.total() * size / samples)}
        formula = ""
        if tokens is not None:
            parameters = sum(weight.numel() for weight in setup.model.parameters())
            self.flops["flops_per_step_6n"] = dense_flops(parameters, tokens * size)
            formula = f" (6N: {self.flops['flops_per_step_6n']:.3g})"
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
        of_step = f"{self.flops['flops_per_step']:.3g} FLOPs per step{formula}"
        print(f"MFU: {known}{self._use.about}; {of_step}", flush=True)


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
