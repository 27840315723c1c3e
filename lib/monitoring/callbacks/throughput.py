"""Throughput of a framework's training between two records: steps, samples, tokens, and MFU.

FLOPs are 6 for each parameter and token, forward and backward, as in `dense_flops`, and 4 for a parameter
that is frozen, whose own gradient is not computed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitoring.telemetry.device_pool import DeviceScalar
from monitoring.telemetry.pace import open_pace
from monitoring.telemetry.utilization import OneWarning, Utilization

if TYPE_CHECKING:
    import torch

Fields = dict[str, float | DeviceScalar | None]


class Throughput:
    """The throughput of one training, on all of its devices together."""

    def __init__(self, device: torch.device, *, dtype: str, num_devices: int) -> None:
        """`dtype` is that of the matrix products; `float32` is TF32 where torch computes it so."""
        import torch  # the framework's own

        is_cuda = device.type == "cuda"
        if dtype == "float32" and is_cuda and torch.get_float32_matmul_precision() != "highest":
            dtype = "tf32"
        name = torch.cuda.get_device_name(device) if is_cuda else device.type
        self._use = Utilization.of(0.0, device=name, dtype=dtype, num_devices=num_devices)
        self._began = time.perf_counter()  # before the pace: all time has that of the steps in it
        self._pace = open_pace(device)
        self._samples = self._steps = self._all_steps = self._tokens = 0
        self._flops: float | None = 0.0
        self._all_flops: float | None = 0.0
        self._warn = OneWarning()

    def step(self, samples: int) -> None:
        """Count one more optimizer step, of so many samples and those of its parts."""
        self._pace.step(samples + self._samples)
        self._samples = 0
        self._steps += 1

    def add_samples(self, samples: int) -> None:
        """Add samples of a part of a step, whose gradients are accumulated."""
        self._samples += samples

    def add(self, tokens: int, flops: float | None) -> None:
        """Add the tokens and FLOPs of the steps since the last call; FLOPs are None if unknown."""
        self._tokens += tokens
        if flops is None:
            self._flops = self._all_flops = None
        elif self._flops is not None:
            self._flops += flops

    def restart(self) -> None:
        """Restart the clock: time spent since the last step belongs to no training step."""
        self._pace.restart()

    def read(self) -> Fields:
        """Fields of a step record of the steps since the last reading; `tokens_per_second` only of text."""
        steps, tokens, flops = self._steps, self._tokens, self._flops
        found: Fields = dict(self._pace.read())
        seconds = found["sec_per_step"]
        if tokens:
            found["tokens_per_second"] = _rate(tokens, steps, seconds)
        self._steps = self._tokens = 0
        self._flops = None if flops is None else 0.0
        if not steps or not flops or self._all_flops is None:
            return {**found, "step_mfu": None, "overall_mfu": None}
        self._all_steps += steps
        self._all_flops += flops
        since = time.perf_counter() - self._began
        mean = replace(self._use, flops_per_step=self._all_flops / self._all_steps)
        overall = mean.measured(None, seconds=since, steps=self._all_steps, warn=self._warn)
        here = replace(self._use, flops_per_step=flops / steps)
        of_step = here.measured(seconds, seconds=since, steps=0, warn=self._warn)
        return {**found, "step_mfu": of_step["step_mfu"], "overall_mfu": overall["overall_mfu"]}


def flops_of_token(parameters: int, trainable: int) -> int:
    """Return FLOPs per token, forward and backward, of parameters of which so many are trained."""
    return 6 * trainable + 4 * (parameters - trainable)


def flops_of_module(module: torch.nn.Module) -> int:
    """Return the same of all parameters of a module."""
    counts = [(one.numel(), one.requires_grad) for one in module.parameters()]
    return flops_of_token(sum(n for n, _ in counts), sum(n for n, is_trained in counts if is_trained))


def tokens_in(batch: Any) -> int:
    """Token ids in a batch: those of `input_ids`, else of a first tensor of integers with two dimensions."""
    import torch  # the framework's own

    given = batch.get("input_ids") if isinstance(batch, Mapping) else _first_tensor(batch)
    if not isinstance(given, torch.Tensor) or given.ndim != 2 or given.is_floating_point():
        return 0
    return given.numel() if given.dtype in (torch.int64, torch.int32) else 0


def samples_in(batch: Any) -> int:
    """Return how many samples the first tensor in a batch has; 0 where there is none."""
    found = _first_tensor(batch)
    if found is None:
        return 0
    return int(found.shape[0]) if found.shape else 1


def _first_tensor(batch: Any) -> Any:
    """Return the first tensor in a batch; None where there is none."""
    while not hasattr(batch, "shape"):
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, list | tuple) and batch:
            batch = batch[0]
        else:
            return None
    return batch


def _rate(count: int, steps: int, sec_per_step: float | DeviceScalar | None) -> float | DeviceScalar | None:
    if isinstance(sec_per_step, DeviceScalar):
        later = sec_per_step
        return DeviceScalar(later.arrived, lambda: _rate(count, steps, later.item()))
    return count / (steps * sec_per_step) if sec_per_step else None
