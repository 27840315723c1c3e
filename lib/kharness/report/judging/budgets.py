"""Training budgets of a variant: only with equal budgets is one result better than another.

One unit decides (REPORT_BUDGET_UNIT), and what else differs is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kharness.report.judging.statistics import paired, welch
from kharness.report.runs import RunData
from kharness.runs.budget import COUNTS, counted_unit, spent


@dataclass(frozen=True)
class Budget:
    """Budgets of the runs compared, distinct values in ascending order; more than one means the runs
    themselves differ.
    """

    steps: tuple[int, ...]
    samples: tuple[int, ...]
    tokens: tuple[int, ...]
    """Empty for models that do not count tokens."""
    data: tuple[str, ...]
    """SHA-256 of the training data."""
    seconds: float | None
    """Mean wall time of the training loop in seconds; None if one run's is unknown or does not count."""

    def count(self, unit: str) -> tuple[int, ...]:
        """Return the entries of one of COUNTS."""
        return {"steps": self.steps, "samples": self.samples, "tokens": self.tokens}[unit]


def budget_of(runs: Sequence[RunData]) -> Budget:
    """Return the budget from the runs' end records; samples follow from the start record's data and batch
    sizes.
    """
    seconds = [found for run in runs if (found := run.at_end("training_seconds")) is not None]
    counts = [spent(run.start, run.end, last_step=run.last_step) for run in runs]
    return Budget(
        steps=_distinct(count.steps for count in counts),
        samples=_distinct(count.samples for count in counts),
        tokens=_distinct(count.tokens for count in counts),
        data=tuple(sorted({str(run.start["data_sha256"]) for run in runs if run.start.get("data_sha256")})),
        seconds=sum(seconds) / len(seconds) if seconds and len(seconds) == len(runs) else None,
    )


def unit_of(first: Budget, second: Budget, asked: str = "auto") -> str:
    """Return the unit in which two budgets are compared, where REPORT_BUDGET_UNIT is `asked`."""
    return counted_unit(asked, [unit for unit in COUNTS if first.count(unit) and second.count(unit)])


def mismatch(first: Budget, second: Budget, unit: str) -> str:
    """Return why two budgets do not match in that unit, in words; empty if they do.

    Equal samples in batches of other sizes are other steps and the same budget. Time is judged by its
    intervals (`trained_longer`).
    """
    if unit == "time":
        if first.seconds is None or second.seconds is None:
            return (
                "the time of a training is not known, or does not count because of other work on the machine"
            )
    else:
        ours, theirs = first.count(unit), second.count(unit)
        if not ours or not theirs:
            return f"the number of {unit} was not recorded"
        if ours != theirs or len(ours) > 1:
            return f"budgets differ ({unit} {_range(ours)} vs {_range(theirs)}{_others(first, second, unit)})"
    return "they trained on different data" if first.data != second.data or len(first.data) > 1 else ""


def same_work(first: Budget, second: Budget) -> bool:
    """Return whether both did the same steps on as much data, so that their times differ by the cost of a
    step alone.
    """
    return all(first.count(unit) == second.count(unit) for unit in COUNTS)


def equal_words(first: Budget, second: Budget, unit: str) -> str:
    """Return `equal samples: 5,400; steps 43 vs 169` for two budgets that match."""
    if unit == "time":
        return f"judged by time{_others(first, second, unit)}"
    return f"equal {unit}: {_range(first.count(unit))}{_others(first, second, unit)}"


def _others(first: Budget, second: Budget, unit: str) -> str:
    """Return the other counts that differ, each after a semicolon."""
    return "".join(
        f"; {other} {_range(first.count(other))} vs {_range(second.count(other))}"
        for other in COUNTS
        if other != unit and first.count(other) != second.count(other)
    )


def trained_longer(
    ahead: Sequence[RunData], behind: Sequence[RunData], *, in_pairs: bool, tolerance: float, level: float
) -> str:
    """Return how much longer the side ahead took, in words, if by more than `tolerance`; empty if not.

    Clocks of shared machines are noisy: the whole interval of the ratio has to exceed the tolerance.
    """
    times = [[run.at_end("training_seconds") for run in side] for side in (ahead, behind)]
    # Logarithms, since a slower machine multiplies a time: the mean difference is then a ratio of geometric
    # means.
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
    """Return `940 steps, 60,000 samples, 12.3 s`."""
    parts = [
        f"{_range(counts)} {name.removesuffix('s') if counts == (1,) else name}"
        for name, counts in [("steps", budget.steps), ("samples", budget.samples), ("tokens", budget.tokens)]
        if counts
    ]
    if with_time and budget.seconds is not None:
        parts.append(f"{budget.seconds:.1f} s")
    return ", ".join(parts) or "not recorded"


def _distinct(counts: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(sorted({count for count in counts if count is not None}))


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "unknown"
    low, high = f"{counts[0]:,}", f"{counts[-1]:,}"
    return low if low == high else f"{low} to {high}"
