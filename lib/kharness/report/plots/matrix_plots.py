"""The learning curves of a matrix: a line per variant with its runs behind it, or a panel per variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kharness.report.graphs._curves import Curve, bin_size, curves
from kharness.report.plots.plot import Plot, Strand, plot_of
from kharness.report.plots.scales import Kind
from kharness.report.runs import RunData, Series
from kharness.report.summary import Summary

# As many as the palette has colors; more variants have a panel each.
_MOST_TOGETHER = 6
MOST_PANELS = 40
"""Panels of a metric; the CSV beside the page has all variants."""
# From so many runs on the range of a variant's runs is an area, and not a line for each.
_FEWEST_FOR_AREA = 3

_AREAS = "Lines are means over seeds; areas reach from the lowest run to the highest."
_FINE = "Of long runs a point is the mean of several steps."
_PANELS = "A panel has a variant's mean, and the range of its runs; gray is the range of all variants."


@dataclass(frozen=True)
class PlottedMetric:
    """A metric that is drawn over steps."""

    name: str
    """The name of the graph with the same numbers, where there is one."""
    title: str
    read: Callable[[RunData], Series]
    factor: float = 1.0
    kind: Kind = "linear"
    dots: bool = False
    binned: bool = True


def plots_of_matrix(summary: Summary) -> Sequence[tuple[str, Sequence[Plot]]]:
    """Return title and panels of each metric that the runs have, the loss first."""
    found = []
    for metric in _metrics(summary):
        panels = _panels(summary, metric)
        if panels:
            found.append((metric.title, panels))
    return found


def strands_of_matrix(summary: Summary) -> Sequence[tuple[PlottedMetric, Sequence[Strand]]]:
    """Return each metric with the lines of all variants in one frame, for a picture outside the page."""
    found = []
    for metric in _metrics(summary):
        drawn, _ = _curves(summary, metric)
        labels = list(dict.fromkeys(one.variant for one in drawn))
        strands = [one for i, label in enumerate(labels) for one in _strands(drawn, label, i, metric)]
        if strands:
            found.append((metric, strands))
    return found


def _metrics(summary: Summary) -> list[PlottedMetric]:
    found = [
        PlottedMetric(
            "training_loss", "Training loss", lambda run: run.metric("step", "train_loss"), kind="log"
        ),
        PlottedMetric(
            "validation_loss",
            "Validation loss",
            lambda run: run.validation("val_loss"),
            kind="log",
            dots=True,
            binned=False,
        ),
        PlottedMetric(
            "validation_accuracy",
            "Validation accuracy (%)",
            lambda run: run.validation("val_accuracy"),
            100,
            "log error",
            True,
            False,
        ),
    ]
    if any(cell.run.end.get("tokens_seen") for cell in summary.cells):
        found.append(
            PlottedMetric(
                "perplexity", "Validation perplexity", _perplexity, kind="log", dots=True, binned=False
            )
        )
    if all(cell.run.reads_more for cell in summary.cells if cell.run.start):
        found += [
            PlottedMetric("learning_rate", "Learning rate", lambda run: run.metric("step", "lr")),
            PlottedMetric(
                "gradient_norm", "Gradient norm", lambda run: run.metric("step", "grad_norm"), kind="log"
            ),
            PlottedMetric("throughput", "Throughput (samples/s)", _throughput),
        ]
    return found


def _perplexity(run: RunData) -> Series:
    loss = run.validation("val_loss")
    values = type(loss.values)("d", [math.exp(min(value, 700.0)) for value in loss.values])
    return replace(loss, values=values)


def _throughput(run: RunData) -> Series:
    """Samples per second; of a run beside other work they say nothing of the variant."""
    return Series() if run.crowded else run.metric("step", "samples_per_sec")


def _curves(summary: Summary, metric: PlottedMetric) -> tuple[Sequence[Curve], int]:
    """Return all curves with the steps that a point stands for; none where all are single points."""
    size = bin_size(summary, metric.read) if metric.binned else 1
    found = curves(summary, metric.read, scale=metric.factor, size=size)
    return (found if any(len(one.steps) > 1 for one in found) else []), size


def _panels(summary: Summary, metric: PlottedMetric) -> list[Plot]:
    found, size = _curves(summary, metric)
    labels = list(dict.fromkeys(one.variant for one in found))
    if not labels:
        return []
    if len(labels) <= _MOST_TOGETHER:
        strands = [one for i, label in enumerate(labels) for one in _strands(found, label, i, metric)]
        said = [_AREAS] if any(one.lows for one in strands) else []
        said += [_FINE] if size > 1 else []
        return [plot_of(metric.name, metric.title, strands, scale=metric.kind, said=said)]
    means = [_strand(one, -1, "other") for one in found if not one.run] or [
        _strand(one, -1, "other") for one in found
    ]
    around = _around(means)
    panels = []
    for label in labels[:MOST_PANELS]:
        own = _strands(found, label, 0, metric)
        behind = around or [one for one in means if one.label != label]
        panels.append(
            plot_of(
                metric.name, label, [*behind, *own], scale=metric.kind, like=means, small=True, said=[_PANELS]
            )
        )
    return panels


def _strands(found: Sequence[Curve], label: str, color: int, metric: PlottedMetric) -> list[Strand]:
    """Return a variant's area or runs, then its mean; runs that are not complete stay lines of their own."""
    own = [one for one in found if one.variant == label]
    means = [one for one in own if not one.run]
    runs = [one for one in own if one.run and one.complete]
    strands = []
    as_area = bool(means) and len(runs) >= _FEWEST_FOR_AREA
    if as_area:
        low, high = _range(runs, means[0])
        strands.append(Strand(label, color, "area", means[0].steps, (), low, high))
    elif len(runs) > 1 or not means:
        strands += [_strand(one, color, "run") for one in runs]
    strands += [_strand(one, color, "unfinished") for one in own if one.run and not one.complete]
    strands += [replace(_strand(one, color, "mean"), dots=metric.dots) for one in means]
    return strands


def _strand(one: Curve, color: int, kind: str) -> Strand:
    return Strand(one.variant, color, kind, one.steps, one.values)


def _range(runs: Sequence[Curve], mean: Curve) -> tuple[list[float], list[float]]:
    """Return the lowest and the highest run at each point of the mean."""
    at = [dict(zip(one.steps, one.values, strict=True)) for one in runs]
    values = [[of[step] for of in at if step in of] for step in mean.steps]
    return (
        [min(some, default=value) for some, value in zip(values, mean.values, strict=True)],
        [max(some, default=value) for some, value in zip(values, mean.values, strict=True)],
    )


def _around(means: Sequence[Strand]) -> list[Strand]:
    """Return the range of all variants as one area; empty where they have not the same steps."""
    if len({tuple(one.xs) for one in means}) != 1:
        return []
    at = list(zip(*(one.ys for one in means), strict=True))
    return [Strand("", -1, "other", means[0].xs, (), [min(some) for some in at], [max(some) for some in at])]
