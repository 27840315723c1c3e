"""Autotuning chooses by measured trials; these are recorded figures, one trial each."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from kharness.training.autotune.search import Choice, Search, largest_micro_batch, quicker
from kharness.training.autotune.trial import TrialFailedError, TrialStep
from kharness.training.errors import OutOfMemoryError

from .recorded import Recorded

TriedT = TypeVar("TriedT")
FoundT = TypeVar("FoundT")

STEP = TrialStep(samples=4, part_seconds=1.0, update_seconds=0.5, memory=0, free=1000, num_steps=100)


def run(search: Search[TriedT, FoundT], trial: Callable[[TriedT], Recorded]) -> tuple[FoundT, list[TriedT]]:
    """Choice of a search and the settings it tried; every trial is closed."""
    begun: list[Recorded] = []
    tried: list[TriedT] = []
    steps: Generator[TriedT, Recorded, FoundT] = search
    try:
        tried.append(next(steps))
        while True:
            begun.append(trial(tried[-1]))
            tried.append(steps.send(begun[-1]))
    except StopIteration as end:
        assert all(one.is_closed for one in begun)
        found: FoundT = end.value
        return found, tried


def fitting(
    batch: int, memory: Callable[[int], int | None], free: int | None = 1000
) -> tuple[Choice, list[int]]:
    """The choice, and the sizes that were tried, where a size needs memory(size) bytes, None for too many."""

    def trial(size: int) -> Recorded:
        needed = memory(size)
        if needed is None:
            return Recorded([STEP, TrialFailedError("no memory", memory=True)])
        return Recorded([STEP, replace(STEP, memory=needed, free=free)])

    return run(largest_micro_batch(batch, lambda size: size), trial)


def test_the_line_through_two_sizes_finds_the_largest_and_a_trial_verifies_it() -> None:
    choice, tried = fitting(64, lambda size: 100 + 20 * size)
    assert tried == [1, 2, 32]
    assert choice == Choice("32", "the largest part of 64 that fits: 0.7 kB of 1.0 kB free")


def test_a_tenth_is_left_free() -> None:
    assert fitting(2, lambda size: 450 * size)[0].value == "2"
    assert fitting(2, lambda size: 450 * size + 1)[0].value == "1"


def test_only_divisors_are_tried() -> None:
    assert fitting(12, lambda size: 100 * size)[1] == [1, 2, 6]
    assert fitting(7, lambda size: 200 * size) == (
        Choice("1", "the largest part of 7 that fits: 0.2 kB of 1.0 kB free"),
        [1, 7],
    )


def test_a_prediction_that_was_too_high_is_corrected_by_its_trial() -> None:
    """Memory that grows faster than the first two sizes say, and a size that does not end at all."""
    choice, tried = fitting(64, lambda size: None if size > 16 else 10 * size + size * size)
    assert tried[:3] == [1, 2, 64]
    assert (choice.value, tried[-1]) == ("16", 16)


def test_a_prediction_that_was_too_low_is_corrected_by_its_trial() -> None:
    choice, tried = fitting(64, lambda size: 100 if size == 1 else 300 + size)
    assert (choice.value, tried) == ("64", [1, 2, 4, 64])


def test_without_a_known_limit_all_of_the_batch_is_taken() -> None:
    assert fitting(8, lambda size: 10**15, free=None)[0] == Choice(
        "8", "the largest part of 8 that fits: 1000000.00 GB"
    )


@pytest.mark.parametrize("needed", [None, 901])
def test_what_fits_in_no_part_is_refused(needed: int | None) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        fitting(4, lambda size: needed)
    assert str(caught.value).startswith("BATCH_SIZE_AUTO: micro-batches of 1 need more than the memory")
    assert caught.value.hint == "choose a smaller model, or an optimizer with less state"


def test_another_failure_is_no_lack_of_memory() -> None:
    with pytest.raises(TrialFailedError, match="a bug"):
        run(largest_micro_batch(2, lambda size: size), lambda size: Recorded([TrialFailedError("a bug")]))


def timed(first: float, later: Sequence[float], *, num_steps: int = 100) -> Recorded:
    """Steps of 8 samples, of which 4 are computed: 2 x part + update."""
    steps = [replace(STEP, part_seconds=seconds, num_steps=num_steps) for seconds in (first, *later)]
    return Recorded(steps)


def compared(one: Recorded, two: Recorded, most_seconds: float = math.inf) -> Choice | None:
    search = quicker(0, 1, samples=8, most_seconds=most_seconds, names=("n", "y"))
    return run(search, lambda number: (one, two)[number])[0]


def test_a_compilation_that_pays_off_over_the_planned_steps_is_taken() -> None:
    """The median ignores one slow step among five."""
    found = compared(timed(1.5, [1.0] * 6), timed(41.0, [0.5, 0.5, 9.0, 0.5, 0.5, 0.5]))
    # 100 x 2.5 + 2 x 0.5 against 100 x 1.5 + 2 x 40.5
    assert found == Choice("y", "n 2.5 s per step, y 1.5 s; all 100 steps with the first 251 s and 231 s")


def test_one_that_does_not_is_left() -> None:
    found = compared(timed(1.5, [1.0] * 6), timed(61.0, [0.5] * 6))
    assert found == Choice("n", "n 2.5 s per step, y 1.5 s; all 100 steps with the first 251 s and 271 s")


def test_a_budget_of_time_counts_as_planned_steps() -> None:
    one, two = timed(1.0, [1.0] * 6), timed(11.0, [0.5] * 6)
    found = compared(one, two, most_seconds=25)
    assert found == Choice("n", "n 2.5 s per step, y 1.5 s; all 10 steps with the first 25 s and 36 s")
    assert two.limits[0] == 25, "a compilation is not waited for longer than the training would take"


def test_what_cannot_be_compiled_is_left_with_its_reason() -> None:
    failed = Recorded([TrialFailedError("no compiler\nmany lines")])
    assert compared(timed(1.0, [1.0] * 6), failed) == Choice("n", "y: no compiler")


def test_nothing_is_chosen_where_the_usual_takes_no_step() -> None:
    assert compared(Recorded([TrialFailedError("a bug")]), timed(1.0, [])) is None
