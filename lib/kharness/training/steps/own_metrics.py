"""Metrics that a train.py adds to the record of a step (`training.record`)."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from kharness.training.distributed.world import World
from kharness.training.errors import TrainingError

Value = float | Tensor
"""A number, or a tensor of one element, which stays on its device."""


class OwnMetrics:
    """Means of what was recorded in the current step: over its micro-batches by their share, and over ranks.

    Nothing waits for a device: the sums of tensors are tensors, which the run's journal takes as they are.
    """

    def __init__(self, world: World, device: torch.device) -> None:
        self._world, self._device = world, device
        self._sums: dict[str, Value] = {}

    def begin(self) -> None:
        """A step begins."""
        self._sums = {}

    def add(self, metrics: dict[str, Value], *, weight: float) -> None:
        """Add values that count `weight` in the mean; TrainingError for one that is no single number."""
        for name, value in metrics.items():
            if isinstance(value, Tensor):
                if value.numel() != 1:
                    raise TrainingError(
                        f"record({name}=…): a tensor of shape {tuple(value.shape)} is no single number",
                        hint=f"record its mean: training.record({name}=value.mean())",
                    )
                value = value.detach().reshape(())
            elif not isinstance(value, (int, float)):
                raise TrainingError(
                    f"record({name}=…): {type(value).__name__} is no number",
                    hint="record numbers, or tensors of one element",
                )
            weighted = value * weight if weight != 1 else value
            self._sums[name] = self._sums[name] + weighted if name in self._sums else weighted

    def read(self, record: dict[str, Any]) -> dict[str, Value]:
        """The step's means, for a record that has the fields of `record`; waits for the other ranks.

        TrainingError where a field has the name of one of them, or a rank recorded others than this one.
        """
        if taken := sorted(self._sums.keys() & record.keys()):
            raise TrainingError(
                f"record({taken[0]}=…): each step record has a {taken[0]} already",
                hint=f"choose another name, such as own_{taken[0]}",
            )
        if self._world.size == 1 or not (names := self._agreed_names()):
            return self._sums
        on_device = any(isinstance(value, Tensor) and value.is_cuda for value in self._sums.values())
        device = self._device if on_device else torch.device("cpu")
        own = torch.stack(
            [torch.as_tensor(self._sums[name], dtype=torch.float64, device=device) for name in names]
        )
        return dict(zip(names, self._world.gathered(own).mean(0), strict=True))

    def _agreed_names(self) -> list[str]:
        """The names in one order; two numbers of each rank, which no device has to deliver, go around."""
        names = sorted(self._sums)
        own = torch.tensor([len(names), zlib.crc32("\n".join(names).encode())])
        if (self._world.gathered(own) != own).any():
            raise TrainingError(
                f"rank {self._world.rank} recorded {', '.join(names) or 'nothing'}, another something else",
                hint="have every process record the same names in the same steps",
            )
        return names
