"""Pruning options that all methods share: when and how much is pruned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kharness.training.errors import TrainingError
from kharness.training.needs import check_fractions

# The share of the sparsity that is still missing after a share of the steps between the first pruning and
# the last.
_MISSING: dict[str, Callable[[float], float]] = {
    # Zhu and Gupta 2017 (To prune, or not to prune), equation 1: fast while there is much to spare
    "cubic": lambda progress: (1 - progress) ** 3,
    "linear": lambda progress: 1 - progress,
    "one-shot": lambda progress: 1.0,
    # slow while the weights are still young, then ever faster
    "slow-to-fast": lambda progress: 1 - progress**3,
}


@dataclass(frozen=True)
class SparsitySchedule:
    """The share of weights that is zero after each step (counted from 1); a pure function of the step."""

    final: float
    first_step: int
    last_step: int
    every: int
    shape: str = "cubic"
    """cubic, linear, one-shot or slow-to-fast."""

    def is_due(self, step: int) -> bool:
        """Whether this step ends with a pruning."""
        if not self.first_step <= step <= self.last_step:
            return False
        return step == self.last_step or (step - self.first_step) % self.every == 0

    def __call__(self, step: int) -> float:
        """The sparsity that a pruning after this step reaches, from zero at the first."""
        if step >= self.last_step:
            return self.final
        progress = max(0.0, (step - self.first_step) / (self.last_step - self.first_step))
        return float(self.final - self.final * _MISSING[self.shape](progress))


@dataclass(frozen=True, kw_only=True)
class PruningOptions:
    """Options of every pruning method."""

    sparsity: float
    """Share of the prunable weights that is zero in the end."""
    start_fraction: float
    """Fraction of the steps before the first pruning."""
    end_fraction: float
    """Fraction of the steps until the sparsity is reached."""
    every: int
    """Steps between prunings."""
    whole_model: bool
    """Whether weights are compared across layers."""
    sparsity_schedule: str
    """How the sparsity rises in between."""

    def __post_init__(self) -> None:
        if self.sparsity_schedule not in _MISSING:
            raise TrainingError(
                f"SPARSITY_SCHEDULE={self.sparsity_schedule} is not a known schedule",
                hint=f"known: {', '.join(_MISSING)}",
            )
        if self.sparsity_schedule == "one-shot":
            object.__setattr__(self, "start_fraction", self.end_fraction)
        check_fractions(self.start_fraction, self.end_fraction)

    def schedule(self, num_steps: int) -> SparsitySchedule:
        """The schedule over a training of so many steps; even the shortest one is pruned."""
        last = max(1, round(self.end_fraction * num_steps))
        first = min(last, round(self.start_fraction * num_steps))
        return SparsitySchedule(self.sparsity, first, last, self.every, self.sparsity_schedule)
