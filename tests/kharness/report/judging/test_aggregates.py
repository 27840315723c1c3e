"""Scores over several workloads, held to the paper's formulas and to the bootstrap as SciPy has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap, mannwhitneyu, trim_mean

from kharness.report.judging.aggregates import (
    ScoreEstimate,
    aggregates,
    estimate,
    improvement,
    interquartile_mean,
    optimality_gap,
    scores_of,
)
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from ..conftest import Make, written_json

OURS = [np.array([0.9, 1.3, 1.1, 0.7, 1.6]), np.array([1.0, 0.8, 1.2, 1.4, 0.95])]
THEIRS = [np.array([0.8, 1.0, 0.9, 0.75, 1.05]), np.array([1.0, 0.85, 1.15, 0.7, 0.9])]


def test_values_are_those_of_scipy() -> None:
    for count in (2, 5, 9, 10):
        values = np.random.default_rng(count).normal(1, 0.3, count)
        assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25), rel=1e-12)
    expected = np.mean(
        [mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(OURS, THEIRS, strict=True)]
    )
    assert improvement(OURS, THEIRS, 0.95).value == pytest.approx(expected, rel=1e-12)


def close(ours: ScoreEstimate, theirs: Any, tolerance: float) -> bool:
    """Whether the ends of two intervals differ by no more than what resampling leaves open."""
    ends = zip((ours.low, ours.high), theirs.confidence_interval, strict=True)
    return all(abs(a - b) < tolerance for a, b in ends)


def test_intervals_are_those_of_scipys_percentile_bootstrap() -> None:
    """With several samples SciPy draws within each of them, which are the strata here."""
    resampling = {"method": "percentile", "n_resamples": 20_000, "rng": np.random.default_rng(1)}

    def over_all(of: Any) -> Any:
        return lambda *workloads, axis: of(np.concatenate(workloads, axis=-1))

    for of in (interquartile_mean, optimality_gap):
        assert close(estimate(OURS, of, 0.95), bootstrap(OURS, over_all(of), **resampling), 0.02)

    def wins(*samples: Any, axis: int) -> Any:
        pairs = zip(samples[:2], samples[2:], strict=True)
        each = [
            (x[..., :, None] > y[..., None, :]) + 0.5 * (x[..., :, None] == y[..., None, :]) for x, y in pairs
        ]
        return np.mean([one.mean(axis=(-2, -1)) for one in each], axis=0)

    assert close(improvement(OURS, THEIRS, 0.95), bootstrap([*OURS, *THEIRS], wins, **resampling), 0.03)


@pytest.mark.parametrize(
    ("of", "recorded"),
    [(interquartile_mean, (1.075, 0.8917, 1.2833)), (optimality_gap, (0.065, 0.01, 0.13))],
)
def test_estimates_are_those_of_rliable(of: Any, recorded: tuple[float, float, float]) -> None:
    """Recorded: get_interval_estimates of rliable 1.2.0 (arch 6.3.0), reps=50000."""
    found = estimate(OURS, of, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx(recorded, abs=0.01)


def test_workloads_count_alike_whatever_their_metric_and_one_has_none(tmp_path: Path, make: Make) -> None:
    made = make.matrix(
        tmp_path / "m",
        {"DATASET": ["mnist", "digits"], "OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2"]},
    )
    scores = {
        "mnist": {"sgd": (0.4, 0.6), "adam": (0.5, 1.0)},
        "digits": {"sgd": (0.8, 0.8), "adam": (0.4, 0.8)},
    }
    for dataset, of in scores.items():
        for optimizer, values in of.items():
            for seed, value in enumerate(values, 1):
                cell = {"DATASET": dataset, "OPTIMIZER": optimizer, "SEED": str(seed)}
                made.add(cell, make.training([2.0, 1.0], [value], value))
    summary = collect(made.directory)
    found = scores_of(summary, summary.conclusions)
    assert {name: [of.tolist() for of in each] for name, each in found.items()} == {
        "sgd": [[0.8, 1.2], [1.0, 1.0]],
        "adam": [[1.0, 2.0], [0.5, 1.0]],
    }
    adam = aggregates(summary, summary.conclusions)[1]
    assert (adam.variant, adam.runs, adam.iqm.value, adam.optimality_gap.value) == ("adam", 4, 1.0, 0.125)
    assert adam.improvement is not None
    assert adam.improvement.value == (0.75 + 0.25) / 2
    written = written_json(summary)["aggregates"]
    assert isinstance(written, list)
    assert [one["variant"] for one in written] == ["sgd", "adam"]
    assert "## Over all workloads" in as_markdown(summary)
