"""What a variant was given to train with: only equal budgets make one result better than another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kharness.report.runs import RunData
from kharness.report.statistics import paired, welch


@dataclass(frozen=True)
class Budget:
    """Of the runs of a variant that are compared; more than one entry means that they differ already."""

    steps: tuple[int, ...]
    samples: tuple[int, ...]
    tokens: tuple[int, ...]
    """Empty for models that do not count tokens."""
    data: tuple[str, ...]
    """SHA-256 of what was trained on."""
    seconds: float | None
    """Mean wall time of the training loop."""


def budget_of(runs: Sequence[RunData]) -> Budget:
    """From the end records, and for samples from the start record's sizes of data and batch."""
    seconds = [found for run in runs if (found := run.at_end("training_seconds")) is not None]
    return Budget(
        steps=_distinct(runs, _steps),
        samples=_distinct(runs, _samples),
        tokens=_distinct(runs, lambda run: _whole(run.end.get("tokens_seen"))),
        data=tuple(sorted({str(run.start["data_sha256"]) for run in runs if run.start.get("data_sha256")})),
        seconds=sum(seconds) / len(seconds) if seconds else None,
    )


def mismatch(first: Budget, second: Budget) -> str:
    """Why two budgets do not match, in words; empty if they do."""
    if not first.steps or not second.steps:
        return "the number of steps was not recorded"
    different = [
        f"{name} {_range(ours)} vs {_range(theirs)}"
        for name, ours, theirs in [
            ("steps", first.steps, second.steps),
            ("samples", first.samples, second.samples),
            ("tokens", first.tokens, second.tokens),
        ]
        if ours != theirs or len(ours) > 1
    ]
    if different:
        return f"budgets differ ({', '.join(different)})"
    return "they trained on different data" if first.data != second.data or len(first.data) > 1 else ""


def trained_longer(
    ahead: Sequence[RunData], behind: Sequence[RunData], *, in_pairs: bool, tolerance: float, level: float
) -> str:
    """How much longer those ahead took, in words, if they took more than `tolerance` longer; empty if not.

    Clocks of shared machines waver: it counts where the whole interval of the ratio is beyond the tolerance.
    """
    times = [[run.at_end("training_seconds") for run in side] for side in (ahead, behind)]
    logs = [[math.log(time) for time in side if time is not None and time > 0] for side in times]
    if not all(logs) or [*map(len, logs)] != [*map(len, times)]:
        return ""
    found = paired(*logs) if in_pairs else welch(*logs)
    interval = found.interval(level)
    least = found.mean if interval is None else interval.low
    if math.exp(least) <= 1 + tolerance:
        return ""
    means = [sum(time for time in side if time is not None) / len(side) for side in times]
    return f"{means[0]:.1f} s vs {means[1]:.1f} s of training, {math.exp(found.mean):.2f} times as long"


def budget_words(budget: Budget, *, with_time: bool = True) -> str:
    """`940 steps, 60,000 samples, 12.3 s`."""
    parts = [
        f"{_range(counts)} {name}"
        for name, counts in [("steps", budget.steps), ("samples", budget.samples), ("tokens", budget.tokens)]
        if counts
    ]
    if with_time and budget.seconds is not None:
        parts.append(f"{budget.seconds:.1f} s")
    return ", ".join(parts) or "not recorded"


def _steps(run: RunData) -> int | None:
    done = _whole(run.end.get("steps_done"))
    return run.last_step if done is None else done


def _samples(run: RunData) -> int | None:
    """As the end record counts them; else whole epochs of the training set, then full batches."""
    counted, steps = _whole(run.end.get("samples_seen")), _steps(run)
    batch = _whole(run.start.get("batch_size"))
    if counted is not None or steps is None or batch is None:
        return counted
    dataset = run.start.get("dataset")
    train = _whole(dataset.get("train")) if isinstance(dataset, Mapping) else None
    per_epoch = _whole(run.start.get("steps_per_epoch"))
    if train is None or not per_epoch:
        return steps * batch
    epochs, rest = divmod(steps, per_epoch)
    return epochs * train + rest * batch


def _distinct(runs: Iterable[RunData], read: Callable[[RunData], int | None]) -> tuple[int, ...]:
    return tuple(sorted({found for run in runs if (found := read(run)) is not None}))


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "unknown"
    low, high = f"{counts[0]:,}", f"{counts[-1]:,}"
    return low if low == high else f"{low} to {high}"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
