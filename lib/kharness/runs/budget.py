"""Training budget of a run: steps, samples and tokens from the start and end records of its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COUNTS = ("samples", "tokens", "steps")
UNITS = ("auto", *COUNTS, "time")
"""Units in which budgets may be compared. `auto`: tokens for text, samples for images, else steps."""


@dataclass(frozen=True)
class Spent:
    """Budget that one run used; None for what was not counted."""

    steps: int | None
    samples: int | None
    tokens: int | None


def spent(start: Mapping[str, object], end: Mapping[str, object], *, last_step: int | None = None) -> Spent:
    """Make it from the two records; `last_step` replaces a missing `steps_done` of the end record."""
    done = _whole(end.get("steps_done"))
    steps = last_step if done is None else done
    return Spent(steps, _samples(start, end, steps), _whole(end.get("tokens_seen")))


def counted_unit(asked: str, known: Sequence[str]) -> str:
    """Return the unit to compare by, given the requested one and the COUNTS that all runs have."""
    if asked != "auto":
        return asked
    return next((unit for unit in ("tokens", "samples") if unit in known), "steps")


def _samples(start: Mapping[str, object], end: Mapping[str, object], steps: int | None) -> int | None:
    """Return the samples counted in the end record; else full epochs of the training set, then full
    batches.
    """
    counted, batch = _whole(end.get("samples_seen")), _whole(start.get("batch_size"))
    if counted is not None or steps is None or batch is None:
        return counted
    dataset = start.get("dataset")
    train = _whole(dataset.get("train")) if isinstance(dataset, Mapping) else None
    per_epoch = _whole(start.get("steps_per_epoch"))
    if train is None or not per_epoch:
        return steps * batch
    epochs, rest = divmod(steps, per_epoch)
    return epochs * train + rest * batch


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
