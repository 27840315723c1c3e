"""Searches by trial: the largest micro-batch that fits, and the faster of two configurations.

Each search is a generator: it yields what is to be tried, is given the trial that runs, and returns what it
has found. So it is the caller who begins processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kharness.training.autotune.trial import TrialFailedError, TrialStep
from kharness.training.errors import OutOfMemoryError
from kharness.training.model_check.report import in_units


class Steps(Protocol):
    """A trial that takes steps."""

    def step(self, most_seconds: float = math.inf, /) -> TrialStep: ...

    def close(self) -> None: ...


TriedT = TypeVar("TriedT")
FoundT = TypeVar("FoundT")
Search = Generator[TriedT, Steps, FoundT]
"""Yields a configuration, and is given a trial of it."""

# Of what is free this share is left to others, and to what a trial does not see.
RESERVE = 0.1

# The second step of a process is the first with the optimizer's state, and with all memory at once.
MEMORY_STEPS = 2

# Steps of each of two configurations before the timed ones, and pairs of timed ones.
WARM_UP, PAIRS = 2, 5


@dataclass(frozen=True)
class Choice:
    """A value, and why it was chosen."""

    value: str
    reason: str


def largest_micro_batch(batch: int, tried: Callable[[int], TriedT]) -> Search[TriedT, Choice]:
    """The largest divisor of a batch with which a training fits into memory; OutOfMemoryError if none does.

    The two smallest are measured first. A line through the two largest that are known predicts which fits,
    and a trial of that one verifies it, until the prediction is one that a trial has verified. `tried` is the
    configuration for a size.
    """
    divisors = [size for size in range(1, batch + 1) if batch % size == 0]
    known: dict[int, TrialStep | None] = {}
    try:
        known[divisors[0]] = yield from _memory(tried(divisors[0]))
    except TrialFailedError as error:
        if error.fixable is None or batch == 1:
            raise
        divisors = divisors[1:]  # batch norm may refuse parts of one sample
        known[divisors[0]] = yield from _memory(tried(divisors[0]))
    if len(divisors) > 1:
        known[divisors[1]] = yield from _memory(tried(divisors[1]))
    while (size := _predicted(divisors, known)) not in known:
        known[size] = yield from _memory(tried(size))
    found = known[size]
    if found is None or not _fits(found, found.memory):
        free = next((step.free for step in known.values() if step), None)
        of = f" of {in_units(free)} that are free" if free is not None else ""
        raise OutOfMemoryError(
            f"BATCH_SIZE_AUTO: micro-batches of {size} need more than the memory{of}",
            hint="choose a smaller model, or an optimizer with less state",
        )
    of = f" of {in_units(found.free)} free" if found.free is not None else ""
    return Choice(str(size), f"the largest part of {batch} that fits: {in_units(found.memory)}{of}")


def quicker(
    usual: TriedT, other: TriedT, *, samples: int, most_seconds: float, names: tuple[str, str]
) -> Search[TriedT, Choice | None]:
    """Which of two configurations ends a training first; None where not even the usual one takes a step.

    Both run at once and take their steps in turn, so that what else the machine does meets both. The medians
    are compared over the steps that are planned, at most those of `most_seconds`, with what the first steps
    took in addition: a compilation must pay off, and one that takes longer than the training without is not
    waited for. `samples` are those of a step, `names` the two values.
    """
    with closing((yield usual)) as one:
        try:
            begun = [one.step() for _ in range(WARM_UP)]
        except TrialFailedError:
            return None
        usual_seconds = step_seconds(begun[-1], samples)
        steps = min(begun[0].num_steps, max(1.0, most_seconds / usual_seconds))
        with closing((yield other)) as two:
            try:
                first = two.step(steps * usual_seconds)
                two.step()
                pairs = [_pair(one, two, is_turned=bool(number % 2)) for number in range(PAIRS)]
            except TrialFailedError as error:
                first_line = (str(error).splitlines() or [""])[0][:200]
                return Choice(names[0], f"{names[1]}: {first_line}")
    seconds = [
        statistics.median(step_seconds(step, samples) for step in taken) for taken in zip(*pairs, strict=True)
    ]
    totals = [
        max(0.0, step_seconds(start, samples) - median) + steps * median
        for start, median in zip((begun[0], first), seconds, strict=True)
    ]
    is_other = totals[1] < totals[0]
    return Choice(
        names[is_other],
        f"{names[0]} {seconds[0]:.3g} s a step, {names[1]} {seconds[1]:.3g} s; "
        f"all {steps:,.0f} steps with the first {totals[0]:.3g} s and {totals[1]:.3g} s",
    )


def _pair(one: Steps, two: Steps, *, is_turned: bool) -> tuple[TrialStep, TrialStep]:
    """A step of each, one after the other."""
    if is_turned:
        late = two.step()
        return one.step(), late
    return one.step(), two.step()


def step_seconds(step: TrialStep, samples: float) -> float:
    """Return the seconds of a step of so many samples, extrapolated from those that the trial computed."""
    return step.part_seconds * samples / step.samples + step.update_seconds


def _memory(tried: TriedT) -> Search[TriedT, TrialStep | None]:
    """Return the last of some trial steps, with its memory; None if the trial runs out of it."""
    with closing((yield tried)) as trial:
        try:
            steps = [trial.step() for _ in range(MEMORY_STEPS)]
        except TrialFailedError as error:
            if not error.memory:
                raise
            return None
    return steps[-1]


def _predicted(divisors: list[int], known: Mapping[int, TrialStep | None]) -> int:
    """The largest size that should fit; the smallest where none does."""
    measured = {size: step for size, step in known.items() if step is not None}
    too_large = [size for size in known if size not in measured]
    too_large += [size for size, step in measured.items() if not _fits(step, step.memory)]
    smaller = [size for size in divisors if size < min(too_large, default=math.inf)]
    fitting = sorted(size for size in measured if size in smaller)
    if not smaller or len(fitting) < 2:
        return (smaller or divisors)[0]
    a, b = fitting[-2:]
    growth = max(0.0, (measured[b].memory - measured[a].memory) / (b - a))
    predicted = [s for s in smaller if _fits(measured[b], measured[b].memory + growth * (s - b))]
    return max([*predicted, b])


def _fits(step: TrialStep, needed: float) -> bool:
    return step.free is None or needed <= (1 - RESERVE) * step.free
