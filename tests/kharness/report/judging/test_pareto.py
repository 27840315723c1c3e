"""Fronts by hand, and against the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kharness.report.judging.pareto import Front, front
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from .conftest import MatrixOf, end

number = st.none() | st.integers(-3, 3).map(float)


Values = dict[str, tuple[float | None, float | None]]


def make(
    values: Values,
    *,
    higher_is_better: bool = True,
    resolution: tuple[float, float] = (0.0001, 0.1),
    shown: set[tuple[str, str]] | None = None,
) -> Front:
    """Every difference is shown where `shown` does not say which."""
    return front(
        values,
        workload="w",
        quality="q",
        cost="c",
        higher_is_better=higher_is_better,
        resolution=resolution,
        shown={(one, other) for one in values for other in values} if shown is None else shown,
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


def test_nothing_is_beaten_by_what_is_not_shown_to_be_better() -> None:
    values: Values = {"a": (0.99, 10.0), "b": (0.98, 20.0), "c": (0.97, 30.0)}
    assert make(values, shown=set()).members == ["a", "b", "c"]
    some = make(values, shown={("b", "c")})
    assert (some.members, some.dominated) == (["a", "b"], {"c": "b"})
    # shown to be better, and dearer
    assert make({"a": (0.99, 20.0), "b": (0.98, 10.0)}, shown={("a", "b")}).members == ["a", "b"]
    # one that is beaten itself beats, too, where nothing else is shown
    chain = make(values, shown={("a", "b"), ("b", "c")})
    assert (chain.members, chain.dominated) == (["a"], {"b": "a", "c": "b"})


def runs(accuracy: float, seconds: float, *noise: float) -> dict[str, object]:
    """Five seeds around an accuracy and a time."""
    return {
        str(seed): end(accuracy + by / 100, training_seconds=seconds + by) for seed, by in enumerate(noise, 1)
    }


def test_what_the_page_does_not_show_beats_nobody(matrix_of: MatrixOf) -> None:
    """A difference of 0.04 points and half a second is within the seeds' noise; three points are not."""
    matrix = matrix_of(
        sgd=runs(0.95, 10.2, -0.5, 0.3, 0.1, -0.2, 0.3),
        adam=runs(0.9504, 9.7, 0.4, -0.3, 0.2, 0.1, -0.4),
        lion=runs(0.85, 30.0, 0.2, 0.1, -0.5, 0.4, -0.2),
    )
    summary = collect(matrix.made.directory)
    verdicts = {one.variant: one.verdict.value for one in summary.conclusions.comparisons}
    assert verdicts == {"adam": "no difference shown", "lion": "worse"}
    (found,) = [one for one in summary.conclusions.fronts if one.cost == "training_seconds"]
    assert (found.members, found.judged) == (["sgd", "adam"], True)
    assert found.dominated == {"lion": "sgd"}
    assert "On a front (Pareto) is what no other variant is shown to beat. Beaten is" in as_markdown(summary)


def test_of_too_few_seeds_all_are_on_the_front(matrix_of: MatrixOf) -> None:
    matrix = matrix_of(
        sgd={"1": end(0.9, training_seconds=1.0), "2": end(0.91, training_seconds=1.1)},
        adam={"1": end(0.1, training_seconds=9.0), "2": end(0.11, training_seconds=9.2)},
    )
    summary = collect(matrix.made.directory)
    (found,) = [one for one in summary.conclusions.fronts if one.cost == "training_seconds"]
    assert (found.members, found.dominated, found.judged) == (["sgd", "adam"], {}, False)
    assert "with fewer than 3 seeds nothing is shown, and all are on it" in as_markdown(summary)
