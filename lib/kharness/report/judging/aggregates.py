"""Aggregate scores over several workloads, as rliable defines them, with stratified bootstrap intervals.

Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS 2021): the
interquartile mean of all runs of all workloads, the optimality gap, and the probability of improvement. A
score is relative to the baseline's mean on its workload, which is 1 in every one: higher is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kharness.report.collection import Collection, variant_labels
from kharness.report.judging.baseline import WORKLOAD_AXES, without_workload
from kharness.report.judging.conclusions import Conclusions, workloads_of
from kharness.report.judging.statistics import Numbers

REPETITIONS = 5000
"""Bootstrap resamples; the seed is fixed, so that the same runs give the same intervals."""

GAMMA = 1.0
"""Score that counts as optimal: the baseline's mean."""

_FEWEST_RUNS = 2

Scores = Sequence[Numbers]
"""Scores of one variant: the runs of each workload, in the order of the workloads."""


@dataclass(frozen=True)
class ScoreEstimate:
    """A number with its interval at the report's confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Aggregate:
    """The aggregates of one variant."""

    variant: str
    runs: int
    iqm: ScoreEstimate
    """Mean of the middle half of all scores."""
    optimality_gap: ScoreEstimate
    """Mean shortfall from GAMMA; lower is better."""
    improvement: ScoreEstimate | None
    """Probability that a run of it beats one of the baseline, mean over workloads; None for the baseline."""


def aggregates(summary: Collection, conclusions: Conclusions) -> Sequence[Aggregate]:
    """Return the variants that every workload has; none with fewer than two workloads or two runs in each."""
    scores = scores_of(summary, conclusions)
    if not scores:
        return []
    confidence, baseline = summary.settings.confidence, next(iter(scores))
    return [
        Aggregate(
            variant=name,
            runs=sum(map(len, of)),
            iqm=estimate(of, interquartile_mean, confidence),
            optimality_gap=estimate(of, optimality_gap, confidence),
            improvement=None if name == baseline else improvement(of, scores[baseline], confidence),
        )
        for name, of in scores.items()
    ]


def scores_of(summary: Collection, conclusions: Conclusions) -> Mapping[str, Scores]:
    """Return relative scores by the variant's name across workloads, the first variant's as the baseline."""
    workloads = workloads_of(summary)
    if len(workloads) < 2:
        return {}
    axes = {symbol: values for symbol, values in summary.axes.items() if symbol not in WORKLOAD_AXES}
    found: dict[str, list[Numbers]] = {}
    for name, variants in workloads.items():
        metric, _ = conclusions.metrics[name]
        labels = variant_labels([without_workload(one) for one in variants], axes)
        numbers = {label: np.array(one.numbers(metric)) for label, one in zip(labels, variants, strict=True)}
        reference = next(iter(numbers.values()))
        # scores are ratios, which mean nothing beside a reference of zero or less
        if metric.higher_is_better is None or len(reference) < _FEWEST_RUNS or reference.mean() <= 0:
            return {}
        for label, values in numbers.items():
            if len(values) >= _FEWEST_RUNS and (values > 0).all():
                ratio = values / reference.mean()
                # so that a half of the baseline's loss and twice its accuracy are both 2
                found.setdefault(label, []).append(ratio if metric.higher_is_better else 1 / ratio)
    return {label: of for label, of in found.items() if len(of) == len(workloads)}


def interquartile_mean(scores: Numbers) -> Numbers:
    """Return the mean of the middle half of each row: a quarter of the runs is cut at either end."""
    # rounded down, as scipy.stats.trim_mean does, which rliable uses
    cut = int(0.25 * scores.shape[-1])
    mean: Numbers = np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut].mean(axis=-1)
    return mean


def optimality_gap(scores: Numbers) -> Numbers:
    """Return GAMMA less the mean of the scores of each row, each at most GAMMA."""
    gap: Numbers = GAMMA - np.minimum(scores, GAMMA).mean(axis=-1)
    return gap


def estimate(scores: Scores, of: Callable[[Numbers], Numbers], confidence: float) -> ScoreEstimate:
    """Return an aggregate with its percentile interval; runs are drawn anew within each workload."""
    generator = np.random.default_rng(0)
    drawn = np.concatenate(
        [one[generator.integers(0, len(one), (REPETITIONS, len(one)))] for one in scores], axis=1
    )
    return _with_interval(float(of(np.concatenate(scores))), of(drawn), confidence)


def improvement(ours: Scores, theirs: Scores, confidence: float) -> ScoreEstimate:
    """Return the mean over workloads of P(a run of ours > one of theirs), where a tie counts half."""
    generator = np.random.default_rng(0)
    value, drawn = 0.0, np.zeros(REPETITIONS)
    for one, other in zip(ours, theirs, strict=True):
        wins = (one[:, None] > other) + 0.5 * (one[:, None] == other)
        value += float(wins.mean())
        # how often each run is drawn in each resample
        first, second = (
            generator.multinomial(len(side), [1 / len(side)] * len(side), size=REPETITIONS).astype(np.float64)
            for side in (one, other)
        )
        # A resample's wins are the table of wins weighted by how often either side was drawn: the same
        # numbers as from comparing the resampled runs, without REPETITIONS tables of them.
        drawn += np.einsum("ri,ij,rj->r", first, wins, second) / wins.size
    return _with_interval(value / len(ours), drawn / len(ours), confidence)


def _with_interval(value: float, drawn: Numbers, confidence: float) -> ScoreEstimate:
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return ScoreEstimate(value, float(low), float(high))
