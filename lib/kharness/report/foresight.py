"""What a matrix could show, said before it runs: the smallest difference that its seeds would find."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.report.errors import ReportError
from kharness.report.judging.baseline import baseline_of
from kharness.report.judging.blocks import residual_deviation
from kharness.report.judging.conclusions import decisive_metric
from kharness.report.judging.looks import FEWEST
from kharness.report.judging.main_effects import main_effects
from kharness.report.judging.pairing import pair_up
from kharness.report.judging.sentences import smallest_words
from kharness.report.judging.statistics import POWER, detectable, largest_t
from kharness.report.metrics import Metric
from kharness.report.summary import Summary, collect, summary_of_plan
from kharness.runs.files import LATEST
from monitoring.counts import counted


def foresight_lines(
    directory: Path, planned: Mapping[str, Any], given: Mapping[str, str], *, results: Path
) -> list[str]:
    """For a matrix that is not written yet; its deviation is judged by the newest one in `results`."""
    summary = summary_of_plan(directory, planned, given)
    metric, _ = decisive_metric(summary.cells, summary.settings)
    compared = baseline_of(summary).pairs
    pairs = [pair_up(*pair, metric, summary.settings) for pair in compared]
    if not pairs:
        return []
    looks, seeds = pairs[0].looks, min(len(one.planned) for one in pairs)
    look = looks.reached(seeds)
    if look is None or look < FEWEST:
        return [f"verdicts: none from {counted(seeds, 'seed')}; they begin at {max(FEWEST, looks.first)}"]
    alpha = (1 - summary.settings.confidence) * looks.share(look)
    number, degrees, effects = len(pairs), len(pairs) * (look - 1), len(main_effects(compared))
    critical = largest_t(number, degrees, alpha * number / (number + effects))
    deviations = detectable(critical, degrees) * math.sqrt(2 / look)
    also = f" and {counted(effects, 'main effect')}" if effects else ""
    what = f"verdicts: {counted(number, 'comparison')}{also} at {look} seeds"
    size = f"a difference of {deviations:.2g} standard deviations or more is found ({POWER * 100:g} % power)"
    return [f"{what}; {size}", *_in_units(deviations, metric, results)]


def _in_units(deviations: float, metric: Metric, results: Path) -> list[str]:
    """In units of the metric, where an earlier matrix gives the deviation."""
    try:
        before = collect(results / LATEST)
    except ReportError:
        return []
    deviation = _deviation(before, metric)
    if deviation is None:
        return []
    size = smallest_words(deviations * deviation, metric)
    return [f"  by the spread in {before.title} that is {size} of {metric.title}"]


def _deviation(summary: Summary, metric: Metric) -> float | None:
    """What variant and seed leave unexplained, over the seeds that every variant completed."""
    rows = []
    for variant in summary.variants:
        found = {
            cell.seed: number for cell in variant.complete if (number := cell.number(metric)) is not None
        }
        if found:
            rows.append(found)
    seeds = [seed for seed in rows[0] if all(seed in row for row in rows)] if rows else []
    return residual_deviation([[row[seed] for seed in seeds] for row in rows])
