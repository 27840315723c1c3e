"""All looks of a comparison together: what one has shown stays shown, by SciPy's t intervals of each look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy

from kharness.report.collection import CellResult, Variant
from kharness.report.judging.all_pairs import all_pairs
from kharness.report.judging.judgment import SHOWN, Comparison, Verdict, judge
from kharness.report.judging.main_effects import main_effects
from kharness.report.judging.power import Chances, Rule, smallest
from kharness.report.judging.sentences import comparison_sentence, verdict_words
from kharness.report.metrics import metric_named
from kharness.report.runs import RunData
from kharness.report.settings import ReportSettings, read_settings

Rows = Sequence[Sequence[float]]

SHARES = {3: 0.9, 6: 0.05, 12: 0.025, 24: 0.0125}


def variant(label: str, row: Sequence[float], seeds: Sequence[str], **values: str) -> Variant:
    """Complete runs with these results, in the order of the seeds."""
    of = {"steps_done": 1}
    cells = [
        CellResult(
            f"{label}-{seed}",
            {"SEED": seed},
            RunData(Path("nowhere"), "complete", "", 1, {}, {**of, "test_accuracy": value}, {}, 0),
        )
        for seed, value in zip(seeds, row, strict=True)
    ]
    return Variant(values, label, cells)


def judged(rows: Rows, first: int, *, order: Sequence[int] = (), margin: float = 0.0) -> Sequence[Comparison]:
    """All rows against the first one, planned with so many seeds; `order` is that of the runs."""
    names = [str(seed) for seed in range(len(rows[0]))]
    places = order or range(len(names))
    variants = [
        variant(str(i), [row[place] for place in places], [names[place] for place in places])
        for i, row in enumerate(rows)
    ]
    settings = ReportSettings(first_seeds=tuple(names[:first]), seed_order=tuple(names), margin=margin)
    metrics = [metric_named("test_accuracy")] * (len(rows) - 1)
    return judge([(one, variants[0]) for one in variants[1:]], metrics, settings)


def of_differences(differences: Sequence[float], first: int, *, margin: float = 0.0) -> Comparison:
    """A variant that differs from the first one by so much on each seed."""
    baseline = [10.0 + i for i in range(len(differences))]
    rows = [baseline, [number + d for number, d in zip(baseline, differences, strict=True)]]
    (found,) = judged(rows, first, margin=margin)
    return found


def t_interval(differences: Sequence[float], share: float) -> tuple[float, float]:
    n, mean = len(differences), float(np.mean(differences))
    half = scipy.stats.t.ppf(1 - 0.05 * share / 2, n - 1) * np.std(differences, ddof=1) / math.sqrt(n)
    return mean - half, mean + half


FIVE = [1.0, 1.4, 0.8, 1.2, 1.1]


def test_what_five_seeds_have_shown_ten_do_not_take_away() -> None:
    """The look at ten seeds has 5 % of the error, so that its own interval leaves zero in."""
    more = [-1.0, 3.4, -0.8, 3.6, 0.7]
    five, ten = of_differences(FIVE, 5), of_differences([*FIVE, *more], 5)
    alone = t_interval(FIVE, 0.9), t_interval([*FIVE, *more], 0.05)
    assert [one.seeds for one in ten.looks] == [5, 10]
    for look, bounds in zip(ten.looks, alone, strict=True):
        assert (look.interval.low, look.interval.high) == pytest.approx(bounds)
    assert alone[1][0] < 0 < alone[0][0]
    assert (five.verdict, ten.verdict, five.shown_at, ten.shown_at) == (Verdict.BETTER, Verdict.BETTER, 5, 5)
    assert ten.interval is not None
    assert (ten.interval.low, ten.interval.high) == pytest.approx(
        (alone[0][0], min(alone[0][1], alone[1][1]))
    )
    assert ten.interval.level == pytest.approx(1 - 0.05 * 0.95)
    assert five.p_adjusted is not None
    assert ten.p_adjusted == five.p_adjusted
    assert ten.next_look == 20
    assert verdict_words(five) == f"better, p {five.p_adjusted:.2g}"
    assert verdict_words(ten) == f"better, p {five.p_adjusted:.2g}, shown at 5 seeds"
    sentence = "The interval is what all looks have in common: +81.20 to +138.80 at 5 seeds, -"
    assert sentence in comparison_sentence(ten)


def test_looks_that_contradict_each_other_give_no_verdict() -> None:
    """Ten seeds whose interval lies below that of the first five: one of the two is wrong."""
    found = of_differences([*FIVE, *(-100 - 0.01 * i for i in range(95))], 5)
    assert [one.seeds for one in found.looks] == [5, 10, 20, 40, 80]
    assert (found.verdict, found.interval, found.p_adjusted, found.shown_at) == (
        Verdict.UNDECIDED,
        None,
        None,
        None,
    )
    assert found.reason == "the looks at 5 and 80 seeds contradict each other"
    assert "so one of them is wrong" in comparison_sentence(found)
    assert found.difference is not None


def test_a_difference_outside_of_the_interval_is_said_to_be() -> None:
    """The mean of ten seeds lies below all that the first five leave."""
    found = of_differences([*FIVE, -0.2, 0.5, 0.1, 0.2, -0.4], 5)
    assert found.verdict is Verdict.BETTER
    assert found.interval is not None
    assert found.difference is not None
    assert found.difference < found.interval.low
    assert "; the difference over all seeds is not in it" in comparison_sentence(found)


def test_better_becomes_the_same_where_later_looks_leave_only_the_margin() -> None:
    differences = [*FIVE, *(1.0, 1.2) * 8]
    assert of_differences(FIVE, 5, margin=1.35).verdict is Verdict.BETTER
    found = of_differences(differences[:20], 5, margin=1.35)
    assert (found.verdict, found.shown_at) == (Verdict.SAME, 10)


@pytest.mark.parametrize("variants", [2, 4])
def test_no_verdict_is_lost_by_adding_seeds(variants: int) -> None:
    """Over four looks at random matrices each interval lies within that of the look before."""
    rng = np.random.default_rng(variants)
    shown = 0
    for _ in range(60):
        table = rng.normal(size=(variants, 24)) + rng.normal(size=(variants, 1))
        before: Sequence[Comparison] = ()
        for look in SHARES:
            now = judged(table[:, :look].tolist(), 3)
            for old, new in zip(before, now, strict=False):
                assert new.verdict is Verdict.UNDECIDED if new.interval is None else True
                if old.verdict in SHOWN:
                    shown += 1
                    assert new.verdict in (old.verdict, Verdict.UNDECIDED)
                    assert new.shown_at in (old.shown_at, None)
                if old.interval and new.interval:
                    assert old.interval.low <= new.interval.low <= new.interval.high <= old.interval.high
            before = now
        assert [one.seeds for one in before[0].looks] == [*SHARES]
    assert shown > 20


def test_looks_take_the_seeds_as_they_were_first_planned() -> None:
    """In whichever order a later plan has them: the files decide, not the order of the runs."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3, 12)).tolist()
    assert judged(rows, 3, order=[*range(6, 12), *range(6)]) == judged(rows, 3)


def test_a_verdict_that_was_given_counts_those_who_have_gone_on_since() -> None:
    """Two of three have ten seeds, the third five: its first look is that of all three."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4, 10)).tolist()
    all_five = judged([row[:5] for row in rows], 5)
    names = [str(seed) for seed in range(10)]
    variants = [
        variant(str(i), row[:5] if i == 3 else row, names[: 5 if i == 3 else 10])
        for i, row in enumerate(rows)
    ]
    settings = ReportSettings(first_seeds=tuple(names[:5]))
    mixed = judge([(one, variants[0]) for one in variants[1:]], [metric_named("test_accuracy")] * 3, settings)
    assert mixed[2].looks == all_five[2].looks
    assert [one.looks[0] for one in mixed] == [one.looks[0] for one in all_five]


def test_fewer_seeds_than_were_planned_first_give_no_verdict_yet(tmp_path: Path) -> None:
    """Else three of the five would have a look of their own, by the error that the look at five spends."""
    names = [str(seed) for seed in range(6)]
    rows = [[0.1 + 0.001 * seed for seed in range(6)], [0.9 + 0.002 * seed for seed in range(6)]]

    def one(seeds: int) -> Comparison:
        plan = {
            "seeds": {"first": names[:5], "planned": 0, "order": names},
            "axes": [{"symbol": "OPTIMIZER"}, {"symbol": "SEED", "values": names[:seeds]}],
        }
        sides = [variant(str(i), row[:seeds], names[:seeds]) for i, row in enumerate(rows)]
        settings = read_settings(tmp_path, plan, {})
        (found,) = judge([(sides[1], sides[0])], [metric_named("test_accuracy")], settings)
        return found

    few = one(3)
    assert (few.verdict, few.reason) == (Verdict.TOO_FEW, "3, verdicts begin at the 5 planned first")
    assert [(one(seeds).verdict, one(seeds).seeds) for seeds in (5, 6)] == [
        (Verdict.BETTER, tuple(names[:5]))
    ] * 2


def test_main_effects_keep_their_verdicts_too() -> None:
    """Two axes of two levels; the last one's effect is shown by three seeds and blurred by the next ones."""
    rng = np.random.default_rng(3)
    names = [str(seed) for seed in range(6)]
    cells = [(a, b) for a in "xy" for b in "uv"]
    rows = 0.1 * rng.normal(size=(4, 6))
    rows[:, 3:] *= 60
    for i, (_, b) in enumerate(cells):
        rows[i] += 5.0 * (b == "v")
    for number, looks in ((3, [3]), (6, [3, 6])):
        variants = [
            variant(f"{a}{b}", rows[i, :number].tolist(), names[:number], A=a, B=b)
            for i, (a, b) in enumerate(cells)
        ]
        pairs = [(one, variants[0]) for one in variants[1:]]
        metrics, settings = [metric_named("test_accuracy")] * 3, ReportSettings(first_seeds=tuple(names[:3]))
        found = judge(pairs, metrics, settings, main_effects(pairs))
        (effect,) = [one for one in found if one.variant == "b=v"]
        assert (effect.verdict, effect.shown_at) == (Verdict.BETTER, 3)
        assert [one.seeds for one in effect.looks] == looks


def test_fronts_and_ranks_keep_the_pairs_that_a_look_has_shown() -> None:
    seeds = [str(seed) for seed in range(10)]
    first = np.array([[0.0, 0.1, -0.1, 0.05, -0.05], [3.0, 3.1, 2.9, 3.0, 3.05], [0.1, 0.0, -0.1, 0.1, 0.0]])
    later = np.array([[0.0, 9.0, -9.0, 5.0, 1.0], [3.0, -8.0, 9.0, 2.0, 9.0], [0.1, 3.0, 5.0, 2.0, -8.0]])
    settings = ReportSettings(first_seeds=tuple(seeds[:5]))
    for table in (first, np.hstack([first, later])):
        numbers = {
            name: dict(zip(seeds, row, strict=False)) for name, row in zip("abc", table.tolist(), strict=True)
        }
        found = all_pairs(numbers, seeds[: table.shape[1]], settings)
        assert set(found.less) == {("a", "b"), ("c", "b")}
        assert found.judged == {"a", "b", "c"}
    numbers["c"] = dict(zip(seeds, first[2], strict=False))
    assert set(all_pairs(numbers, seeds, settings).less) == {("a", "b"), ("c", "b")}
    many = [str(seed) for seed in range(80)]
    against = {"a": [*first[0], *(100 + 0.1 * (i % 3) for i in range(75))], "b": [*first[1], *[3.0] * 75]}
    contradicting = {name: dict(zip(many, row, strict=True)) for name, row in against.items()}
    assert set(all_pairs(contradicting, many, settings).less) == set()


@pytest.mark.parametrize("pooled", [False, True])
def test_what_several_looks_show_is_found_in_eighty_percent(pooled: bool) -> None:
    """Simulated pairs (or six variants) at 5, 10 and 20 seeds, shown at any of them."""
    comparisons = 5 if pooled else 1
    looks = {5: 0.045, 10: 0.0025, 20: 0.00125}
    *earlier, last = looks.items()
    rule = Rule(comparisons, 1.0, 0.5, comparisons * 19, 20, pooled=pooled, own_level=0.05)
    chances = Chances(rule, *last, math.sqrt(2), None, 0.0, tuple(earlier))
    size = smallest(chances)
    assert chances.power(size) == pytest.approx(0.8, abs=1e-3)
    alone = [smallest(Chances(rule, *look, math.sqrt(2), None, 0.0)) for look in looks.items()]
    assert size < min(alone)
    rng = np.random.default_rng(8)
    found = []
    for _ in range(250):
        table = rng.normal(size=(comparisons + 1, 20))
        table[1:] += size
        found += [one.verdict is Verdict.BETTER for one in judged(table.tolist(), 5)]
    assert 0.75 <= np.mean(found) <= 0.86
