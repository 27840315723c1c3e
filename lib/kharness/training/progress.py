"""Counters of a training besides its step, kept in checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from monitoring.telemetry.pace import Stopwatch, cpu_seconds


@dataclass
class ControlledSettings:
    """Settings changed by requests to the running training (monitoring.control)."""

    log_every: int | None = None
    """None while it is LOG_EVERY."""
    lr_factor: float = 1.0
    """Factor on the schedule's learning rate."""


class StepProgress:
    """The losses of this epoch, the best accuracy of all, and times over all attempts."""

    def __init__(self, device: torch.device) -> None:
        self.best_accuracy: float | None = None
        """The highest validation accuracy so far."""
        self.clock = Stopwatch()
        """Training and validation."""
        self.cpu_clock = Stopwatch(clock=cpu_seconds)
        """CPU time of the same."""
        self.epoch_clock = Stopwatch()
        """Those of this epoch."""
        self.skips = 0
        """Steps in a row, up to the latest, that were skipped for a loss or gradient that is not finite."""
        self.control = ControlledSettings()
        self._device = device
        self._loss_sum: Tensor | float = 0.0
        self._seen = 0

    def start_clocks(self) -> None:
        """Count from now on."""
        self.clock.start()
        self.epoch_clock.start()
        self.cpu_clock.start()

    def add(self, loss: Tensor, samples: int) -> None:
        """One more step of this epoch, by its mean loss; on the loss's device, so nothing waits."""
        self._loss_sum += loss.detach() * samples
        self._seen += samples

    def train_loss(self) -> float:
        """The mean over the samples of this epoch so far, NaN if all were skipped; waits for the device."""
        return float(self._loss_sum) / (self._seen or math.nan)

    def note_accuracy(self, accuracy: float) -> None:
        """On the validation images."""
        self.best_accuracy = max(accuracy, self.best_accuracy or 0.0)

    def end_epoch(self) -> None:
        """Begin to count the next epoch."""
        self._loss_sum, self._seen = 0.0, 0
        self.epoch_clock.restart()

    def state_dict(self) -> dict[str, Any]:
        """The state, in types that `torch.load(weights_only=True)` takes."""
        return {
            "loss_sum": self._loss_sum,
            "seen": self._seen,
            "skips": self.skips,
            "control": asdict(self.control),
            "best_accuracy": self.best_accuracy,
            "seconds": self.clock.seconds,
            "cpu_seconds": self.cpu_clock.seconds,
            "epoch_seconds": self.epoch_clock.seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Count on where the state was taken; the clocks stand still until they are started."""
        self._loss_sum = torch.as_tensor(state["loss_sum"], device=self._device)
        self._seen, self.best_accuracy = state["seen"], state["best_accuracy"]
        self.skips, self.control = state["skips"], ControlledSettings(**state["control"])
        self.clock, self.epoch_clock = Stopwatch(state["seconds"]), Stopwatch(state["epoch_seconds"])
        self.cpu_clock = Stopwatch(state["cpu_seconds"], clock=cpu_seconds)
