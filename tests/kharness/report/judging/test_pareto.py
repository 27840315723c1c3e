"""Fronts by hand, and against the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kharness.report.judging.pareto import Front, front

number = st.none() | st.integers(-3, 3).map(float)


Values = dict[str, tuple[float | None, float | None]]


def make(
    values: Values,
    *,
    higher_is_better: bool = True,
    resolution: tuple[float, float] = (0.0001, 0.1),
) -> Front:
    return front(
        values,
        workload="w",
        quality="q",
        cost="c",
        higher_is_better=higher_is_better,
        resolution=resolution,
    )


def test_what_is_beaten_in_both_is_on_no_front() -> None:
    found = make({"slow": (0.99, 20.0), "fast": (0.97, 10.0), "bad": (0.96, 15.0), "worse": (0.95, 30.0)})
    assert found.members == ["slow", "fast"]
    assert found.dominated == {"bad": "fast", "worse": "slow"}


def test_a_loss_is_better_when_it_is_small() -> None:
    assert make({"a": (0.1, 5.0), "b": (0.2, 5.0)}, higher_is_better=False).members == ["a"]
    assert make({"a": (0.1, 5.0), "b": (0.2, 5.0)}).members == ["b"]


def test_equals_share_the_front() -> None:
    assert make({"a": (0.9, 5.0), "b": (0.9, 5.0), "c": (0.9, 6.0)}).members == ["a", "b"]


def test_what_no_table_shows_beats_nobody() -> None:
    """A third of a megabyte is the allocator's mood."""
    memory: Values = {"a": (0.9, 334.8), "b": (0.8, 334.6), "c": (0.90003, 335.2)}
    assert make(memory, resolution=(0.0001, 1.0)).members == ["a", "c"]
    assert make(memory, resolution=(0.00001, 0.1)).members == ["a", "b", "c"]


def test_what_was_not_measured_is_on_no_front_and_beats_nobody() -> None:
    found = make({"a": (0.9, None), "b": (None, 1.0), "c": (0.1, 9.0), "d": (None, None)})
    assert found == Front("w", "q", "c", {"c": (0.1, 9.0)}, ["c"], {}, ["a", "b", "d"])
    assert make({"a": (0.9, None)}).members == []


@given(st.dictionaries(st.text(min_size=1, max_size=2), st.tuples(number, number), max_size=8), st.booleans())
def test_fronts_are_what_the_definition_says(
    values: dict[str, tuple[float | None, float | None]], higher: bool
) -> None:
    found = make(values, higher_is_better=higher)
    for name, (quality, cost) in values.items():
        if quality is None or cost is None:
            assert name in found.unmeasured
            continue
        beaten = any(
            (q >= quality if higher else q <= quality) and c <= cost and (q, c) != (quality, cost)
            for q, c in values.values()
            if q is not None and c is not None
        )
        assert (name in found.members) != beaten
        assert beaten == (name in found.dominated)
        assert not beaten or found.dominated[name] in found.members
