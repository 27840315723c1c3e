"""The levels of verbosity: the record types that each writes, how often for steps, and their contents."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_LEVEL = "high"

# At the level "medium", which steps have a record.
MEDIUM_EVERY = 5

_LOW = frozenset(
    {
        "system_initialization",
        "training_initialization",
        "training_start",
        "epoch_complete",
        "model_checkpoint_save",
        "training_complete",
    }
)
_MEDIUM = _LOW | {"training_step_complete", "epoch_begin", "evaluation_start", "evaluation_complete"}
_HIGH = _MEDIUM | {"resource_warning", "performance_anomaly"}
_ULTRA = _HIGH | {"step_begin", "batch_complete", "prediction_step", "training_metrics_update"}


@dataclass(frozen=True)
class Verbosity:
    """One level."""

    name: str
    types: frozenset[str]
    """The record types that it writes."""
    step_every: int
    """Steps from one record of a step to the next; 0 for none."""
    has_usage: bool = True
    """Whether records hold the use of CPU, memory, GPUs and disk, and trends of it."""
    has_all_trends: bool = False
    """Whether trends of the loss, the step time and each GPU stand beside the basic ones, with slopes."""
    has_complete_state: bool = False
    """Whether the use of resources has temperatures, single cores, swap, load, network and the process."""


LEVELS = {
    level.name: level
    for level in (
        Verbosity("low", _LOW, step_every=0, has_usage=False),
        Verbosity("medium", _MEDIUM, step_every=MEDIUM_EVERY),
        Verbosity("high", _HIGH, step_every=1, has_all_trends=True),
        Verbosity("ultra", _ULTRA, step_every=1, has_all_trends=True, has_complete_state=True),
    )
}


def verbosity(name: str) -> Verbosity:
    """Return the level of that name; ValueError lists the known ones."""
    if name not in LEVELS:
        raise ValueError(f"verbosity_level={name!r} is none of {', '.join(LEVELS)}")
    return LEVELS[name]
