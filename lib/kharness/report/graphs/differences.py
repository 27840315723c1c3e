"""Each variant's difference from its baseline, with the interval that decides whether it counts."""

from __future__ import annotations

from dataclasses import replace

from kharness.report.graphs import Figure, Numbers
from kharness.report.graphs._pictures import MOST_ROWS, figure_of
from kharness.report.judging.judgment import Comparison
from kharness.report.metrics import Metric
from kharness.report.plots.rows import RowPlot
from kharness.report.plots.verdict_rows import verdict_picture
from kharness.report.summary import Summary


def numbers(summary: Summary) -> Numbers:
    """Differences and intervals in the unit of the axis, and what follows from them."""
    return Numbers(
        [
            *("variant", "baseline", "metric", "unit", "difference", "low", "high", "level"),
            *("p_holm", "n_variant", "n_baseline", "verdict", "reason"),
        ],
        [
            [
                *(
                    one.variant,
                    one.baseline,
                    one.metric.name,
                    _unit(one.metric),
                    _scaled(one, one.difference),
                ),
                _scaled(one, one.interval.low if one.interval else None),
                _scaled(one, one.interval.high if one.interval else None),
                one.interval.level if one.interval else None,
                *(one.p_holm, *one.counts, one.verdict.value, one.reason),
            ]
            for one in summary.conclusions.comparisons
        ],
    )


def draw(summary: Summary) -> Figure:
    """Return the rows of each deciding metric, as the page has them."""
    conclusions = summary.conclusions
    why = "no variant can be compared with another yet" if len(summary.variants) > 1 else "one variant"
    pictures = [verdict_picture(one, MOST_ROWS) for one in conclusions.by_metric]
    without = sum(one.difference is None for one in conclusions.comparisons)
    no_difference = f"without a difference: {without} of {len(conclusions.comparisons)} variants"
    bars = f"Bar: {100 * summary.settings.confidence:g} % interval, all bars together; hollow: none is known."
    return figure_of(
        summary,
        "Differences from the baseline",
        [_rows(one, bars) for one in pictures if one],
        nothing=f"nothing to compare: {why}",
        said=[no_difference] if without else [],
    )


def _rows(picture: RowPlot, bars: str) -> RowPlot:
    rows = [replace(one, words=f"{one.words}  {one.verdict}") for one in picture.rows]
    if any(" beyond-" in mark.look for one in rows for mark in one.marks):
        bars += " Arrow: the bar continues."
    return RowPlot("", bars, rows, picture.ticks, picture.caption)


def _scaled(one: Comparison, number: float | None) -> float | None:
    return None if number is None else number * one.metric.scale


def _unit(metric: Metric) -> str:
    """Return the unit of a difference: 98 % minus 97 % is one percentage point."""
    return "percentage points" if metric.shown_unit == "%" else metric.shown_unit or metric.unit
