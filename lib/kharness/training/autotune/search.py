"""Searches by trial: the largest micro-batch that fits, and the faster of two configurations.

Each search is a generator: it yields what is to be tried, is given the trial that runs, and returns what it
has found. So it is the caller who begins processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from kharness.config.options import Options, chosen_in
from kharness.training.autotune.trial import TrialFailedError, TrialStep, samples_of_rank
from kharness.training.distributed.model import FSDP
from kharness.training.distributed.world import World
from kharness.training.errors import OutOfMemoryError, TrainingError, first_line
from kharness.training.model_check import in_units
from kharness.training.needs import may_have_gpu


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
                return Choice(names[0], f"{names[1]}: {first_line(error)[:200]}")
    seconds = [
        statistics.median(step_seconds(step, samples) for step in taken) for taken in zip(*pairs, strict=True)
    ]
    totals = [
        # What its first step took beyond a usual one (compilation, allocation), and then all of them.
        max(0.0, step_seconds(start, samples) - median) + steps * median
        for start, median in zip((begun[0], first), seconds, strict=True)
    ]
    is_other = totals[1] < totals[0]
    return Choice(
        names[is_other],
        f"{names[0]} {seconds[0]:.3g} s per step, {names[1]} {seconds[1]:.3g} s; "
        f"all {steps:,.0f} steps with the first {totals[0]:.3g} s and {totals[1]:.3g} s",
    )


def _pair(one: Steps, two: Steps, *, is_turned: bool) -> tuple[TrialStep, TrialStep]:
    """A step of each, one after the other."""
    # each is first in half of the pairs, and finds in the caches what the other has left
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


# Instructions for products in bfloat16 -> whether this processor has them. Without any, torch multiplies such
# matrices element by element.
BF16_UNITS: dict[str, Callable[[], bool]] = {
    "AMX": torch.cpu._is_amx_tile_supported,
    "AVX512_BF16": torch.cpu._is_avx512_bf16_supported,
}

# Where BATCH_SIZE_AUTO has still to choose, steps are timed with micro-batches of at most so many samples.
TIMED_SAMPLES = 8


def decided(options: Options, world: World, *, run_directory: Path | None) -> Search[Options, Options]:
    """The options with what trials have chosen; of a run that is resumed, with what it has chosen before.

    TrainingError for a batch that does not divide, and for what no trial can begin with.
    """
    if not options.undecided():
        return options
    for name, (value, reason) in (chosen_in(run_directory) if run_directory else {}).items():
        if name in options.undecided():
            options = options.with_chosen(name, value, reason)
    if "OPTIMIZER_MUON_BF16" in options.undecided():
        options = _noted(options, "OPTIMIZER_MUON_BF16", _bf16_choice(options.DEVICE))
    try:
        is_shared = options.PARALLEL == FSDP  # a trial has no other process to share with
        if "AMP" in options.undecided() and may_have_gpu(options.DEVICE) and not is_shared:
            options = yield from _precision(options, world)
        if "COMPILE" in options.undecided():
            options = yield from _compilation(options, world)
        if "MICRO_BATCH_SIZE" in options.undecided():
            options = yield from _micro_batch(options, world)
    except TrialFailedError as error:
        raise error.fixable or error from None
    return options


def agreed(options: Options, world: World) -> Options:
    """The same on all ranks: what rank 0 has chosen, and the smallest of their micro-batches."""
    if world.size == 1 or not options.own_choices():
        return options
    for name, (value, reason) in world.of_main(options.own_choices()).items():
        if name == "MICRO_BATCH_SIZE":
            [least] = world.highest(-options.MICRO_BATCH_SIZE)
            reason = reason if -least == int(value) else f"the least of {world.size} processes"
            value = str(-least)
        options = options.with_chosen(name, value, reason)
    return options


def _precision(options: Options, world: World) -> Search[Options, Options]:
    timed = _timed_values(options, world)
    values = [{"AMP": name, **timed} for name in ("bf16", "none")]
    found = yield from _quicker(options, world, values, ("bf16", "none"))
    return _noted(options, "AMP", found) if found else options


def _quicker(
    options: Options, world: World, values: Sequence[Mapping[str, str]], names: tuple[str, str]
) -> Search[Options, Choice | None]:
    """The quicker of the options with these values in addition, by its name."""
    usual, other = map(options.with_values, values)
    samples = samples_of_rank(options.BATCH_SIZE, world.size)
    most_seconds = 60 * options.MAX_TIME or math.inf
    return quicker(usual, other, samples=samples, most_seconds=most_seconds, names=names)


def _bf16_choice(device: str) -> Choice:
    """Whether bfloat16 pays off for products of matrices, by the instructions of the processor."""
    if may_have_gpu(device):
        return Choice("y", "a GPU orthogonalizes in bfloat16 in any case")
    found = [name for name, has in BF16_UNITS.items() if has()]
    if found:
        return Choice("y", f"this CPU has {found[0]}")
    return Choice("n", f"this CPU has neither {' nor '.join(BF16_UNITS)}")


def _compilation(options: Options, world: World) -> Search[Options, Options]:
    timed = _timed_values(options, world)
    found = yield from _quicker(options, world, [{**timed, "COMPILE": name} for name in "ny"], ("n", "y"))
    return _noted(options, "COMPILE", found or Choice("n", "no step of a trial was possible"))


def _micro_batch(options: Options, world: World) -> Search[Options, Options]:
    batch = options.BATCH_SIZE
    if batch % world.size:
        raise TrainingError(
            f"BATCH_SIZE_AUTO: BATCH_SIZE={batch} is not {world.size} equal parts, one for each process",
            hint=f"choose BATCH_SIZE={max(1, batch // world.size) * world.size}, or set MICRO_BATCH_SIZE",
        )

    def tried(size: int) -> Options:
        return options.with_values({"BATCH_SIZE_AUTO": "n", "MICRO_BATCH_SIZE": str(size)})

    found = yield from largest_micro_batch(samples_of_rank(batch, world.size), tried)
    return _noted(options, "MICRO_BATCH_SIZE", found)


def _timed_values(options: Options, world: World) -> Mapping[str, str]:
    """Return the other values of a timed trial, so that nothing is left to trials."""
    values = {"COMPILE_AUTO": "n", "COMPILE": "n"} if "COMPILE" in options.undecided() else {}
    if "MICRO_BATCH_SIZE" in options.undecided():
        batch = samples_of_rank(options.BATCH_SIZE, world.size)
        size = max(size for size in range(1, min(batch, TIMED_SAMPLES) + 1) if batch % size == 0)
        values |= {"BATCH_SIZE_AUTO": "n", "MICRO_BATCH_SIZE": str(size)}
    return values


def _noted(options: Options, name: str, choice: Choice) -> Options:
    print(f"auto: {name}={choice.value}: {choice.reason}", flush=True)
    return options.with_chosen(name, choice.value, choice.reason)
