"""The learning curves of a matrix: a line per variant, its runs behind it; of many variants some in color."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kharness.report.curves import (
    TRAINING_LOSS,
    VALIDATION_ACCURACY,
    VALIDATION_LOSS,
    Curve,
    PlottedMetric,
    Strand,
    deciding,
    recorded,
)
from kharness.report.judging.profiles import seconds_of_steps
from kharness.report.metrics import metric_named
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, in_turns, plot_of, range_of
from kharness.report.runs import RunData, Series, fields_in
from kharness.report.summary import Summary
from kharness.runs.budget import spent
from monitoring.counts import counted

# From so many runs on the range of a variant's runs is an area, and not a line for each.
_FEWEST_FOR_AREA = 3

_AREAS = "Lines are means over seeds; areas reach from the lowest run to the highest."


_Along = Callable[[float], float]
"""Function from a step to its place on an axis."""


@dataclass(frozen=True)
class SpentAxis:
    """An axis of what a training spends, besides its steps."""

    words: str
    label: str
    of_run: Callable[[RunData], _Along | None]
    """None for a run that does not know it."""
    always: bool = False
    """Whether it says something new even of variants that spend the same in a step."""


def plots_of_matrix(summary: Summary) -> Sequence[Plot]:
    """Return a plot of each metric that the runs have, the loss first.

    The deciding validation is drawn over training time as well, and over samples and tokens where a step of
    one variant has more of them than one of another.
    """
    labels, chosen = _in_color(summary)
    own = deciding(summary)
    metrics = _metrics(summary, own)
    plots = [_plot(summary, metric, _curves(summary, metric), labels, chosen) for metric in metrics]
    validations = [metric for metric in metrics if metric in (VALIDATION_LOSS, VALIDATION_ACCURACY, *own)]
    drawn = [metric for metric in validations if _curves(summary, metric)[0]]
    if drawn:
        plots += [_plot_over(summary, drawn[-1], axis, labels) for axis in AXES]
    return [one for one in plots if one is not None]


def _in_color(summary: Summary) -> tuple[Sequence[str], str]:
    """Return the variants that have a color each, and in words which these are where they are not all."""
    labels = [variant.label for variant in summary.variants]
    if len(labels) <= MOST_IN_COLOR:
        return labels, ""
    many = counted(len(labels), summary.variant_word)
    metric, settings = summary.conclusions.metric, fields_in(summary.plan, "settings")
    if summary.is_sweep and settings:
        metric = metric_named(str(settings["SWEEP_METRIC"]), summary.settings.better)
    means = {one.label: mean for one in summary.variants if (mean := one.statistic(metric).mean) is not None}
    compared = [] if summary.is_sweep else summary.conclusions.comparisons
    # one that is elsewhere is no line here
    baselines = [label for label in dict.fromkeys(one.baseline for one in compared) if label in labels][:1]
    if metric.higher_is_better is None or not means:
        first = [label for label in labels if label not in baselines]
        return [*baselines, *first][:MOST_IN_COLOR], f"the first {MOST_IN_COLOR} of {many}"
    ranked = sorted(means, key=lambda label: means[label], reverse=metric.higher_is_better)
    best = [label for label in ranked if label not in baselines][: MOST_IN_COLOR - len(baselines)]
    baseline = "the baseline and " if baselines else ""
    words = f"{baseline}the {len(best)} best of {many} in {metric.title}"
    return [*baselines, *best], words


def frames_of_matrix(summary: Summary) -> Sequence[Plot]:
    """Return a plot of each metric with the lines of all variants, for a picture outside the page."""
    found = []
    for metric in _metrics(summary, deciding(summary)):
        drawn, _ = _curves(summary, metric)
        labels = [variant.label for variant in summary.variants]
        strands = [one for i, label in enumerate(labels) for one in _strands(drawn, label, i, metric)]
        if strands:
            found.append(plot_of(metric.name, metric.title, strands, scale=metric.kind))
    return found


def _metrics(summary: Summary, own: Sequence[PlottedMetric]) -> list[PlottedMetric]:
    found = [TRAINING_LOSS, VALIDATION_LOSS, VALIDATION_ACCURACY, *own]
    if any(cell.run.end.get("tokens_seen") for cell in summary.cells):
        found.append(_PERPLEXITY)
    if all(cell.run.reads_more for cell in summary.cells if cell.run.start):
        found += _OF_STEPS
    return found


def _perplexity(run: RunData) -> Series:
    loss = run.validation("val_loss")
    values = type(loss.values)("d", [math.exp(min(value, 700.0)) for value in loss.values])
    return replace(loss, values=values)


def _throughput(run: RunData) -> Series:
    """Samples per second; of a run beside other work they say nothing of the variant."""
    return Series() if run.crowded else run.metric("step", "samples_per_sec")


_PERPLEXITY = PlottedMetric(
    "perplexity", "Validation perplexity", _perplexity, kind="log", of_validations=True
)
_OF_STEPS = (
    recorded("learning_rate", "Learning rate", "lr"),
    recorded("gradient_norm", "Gradient norm", "grad_norm", kind="log"),
    PlottedMetric("throughput", "Throughput (samples/s)", _throughput),
    recorded("sparsity", "Sparsity (%)", "sparsity", 100),
)


def _count(unit: str) -> Callable[[RunData], _Along | None]:
    """Return how a run's samples or tokens grow with its steps: evenly."""

    def of_run(run: RunData) -> _Along | None:
        done = spent(run.start, run.end, last_step=run.last_step)
        count = getattr(done, unit)
        return (lambda step: step * count / done.steps) if count and done.steps else None

    return of_run


AXES = (
    SpentAxis("by training time", "training time (s)", seconds_of_steps, always=True),
    SpentAxis("by samples", "samples", _count("samples")),
    SpentAxis("by tokens", "tokens", _count("tokens")),
)


def _plot_over(
    summary: Summary, metric: PlottedMetric, axis: SpentAxis, in_color: Sequence[str]
) -> Plot | None:
    """Draw the means of variants whose complete runs all know the axis; None for fewer than two."""
    found, _ = _curves(summary, metric)
    along = {
        one.label: [axis.of_run(cell.run) for cell in one.complete]
        for one in summary.variants
        if one.label in in_color
    }
    known = [label for label in in_color if along[label] and None not in along[label]]
    if len(known) < 2:
        return None
    strands, ends = [], set()
    for label in known:
        mine = [one for one in along[label] if one is not None]
        for one in _strands(found, label, in_color.index(label), metric):
            if one.kind in ("mean", "area"):
                xs = [statistics.fmean(at(step) for at in mine) for step in one.xs]
                strands.append(replace(one, xs=xs))
                ends |= {round(xs[-1] / one.xs[-1], 9)}
    if not strands or (len(ends) < 2 and not axis.always):
        return None
    drawn, equal = in_turns(_with_counts(summary, strands, found))
    plot = plot_of(metric.name, metric.title, drawn, x_label=axis.label, scale=metric.kind, said=equal)
    return replace(plot, title=f"{metric.title}, {axis.words}", in_words=plot.alt)


def _curves(summary: Summary, metric: PlottedMetric) -> tuple[Sequence[Curve], int]:
    """Return all curves with the steps that a point stands for; none where all are single points."""
    found, size = metric.curves(summary)
    return (found if any(len(one.steps) > 1 for one in found) else []), size


def plot_of_metric(summary: Summary, metric: PlottedMetric) -> Plot | None:
    """Return the curves of all runs, also where each is a single point; None where no run has any."""
    return _plot(summary, metric, metric.curves(summary), *_in_color(summary))


def _plot(
    summary: Summary,
    metric: PlottedMetric,
    drawn: tuple[Sequence[Curve], int],
    in_color: Sequence[str],
    chosen: str,
) -> Plot | None:
    found, size = drawn
    if not found:
        return None
    labels = [label for label in in_color if any(one.variant == label for one in found)]
    # a variant's color is the same in each plot, also where another has no line
    plain = [one for label in labels for one in _strands(found, label, in_color.index(label), metric)]
    strands, equal = in_turns(_with_counts(summary, plain, found))
    said = [_AREAS] if any(one.lows for one in strands) and size == 1 else []
    if size > 1:
        said.append(
            f"A point is the mean of {size} steps; areas reach from their lowest value to the highest."
        )
    behind = _behind([one for one in found if one.variant not in labels]) if chosen else []
    if behind:
        gray = "their range" if behind[0].lows else "a line each"
        said.append(f"In color: {chosen}; of the others {gray} in gray.")
    if any(one.kind == "unfinished" for one in strands):
        said.append("Dotted: a run that did not complete.")
    if any(one.label not in labels for one in strands):
        said.append("n: complete runs of a mean.")
    several = len(summary.variants) > 1
    return plot_of(
        metric.name,
        metric.title,
        [*behind, *strands],
        scale=metric.kind,
        said=[*said, *equal],
        names_one=several,
    )


def _with_counts(summary: Summary, strands: Sequence[Strand], found: Sequence[Curve]) -> Sequence[Strand]:
    """Return the strands with how many complete runs each mean is of; as they are where it is all planned."""
    planned = {one.label: len(one.cells) for one in summary.variants}
    counts = {one.variant: one.num_runs for one in found if not one.run}
    drawn = {(counts.get(one.label, 0), planned[one.label]) for one in strands}
    if max(planned.values()) == 1 or drawn == {(max(planned.values()),) * 2}:
        return strands
    return [replace(one, label=f"{one.label} (n={counts.get(one.label, 0)})") for one in strands]


def _behind(others: Sequence[Curve]) -> Sequence[Strand]:
    """Return the range of the variants without a color; lines where they have not the same steps."""
    means = [one for one in others if not one.run] or others
    strands = [_strand(one, -1, "other") for one in means]
    return range_of(strands)


def _strands(found: Sequence[Curve], label: str, color: int, metric: PlottedMetric) -> list[Strand]:
    """Return a variant's area or runs, then its mean; runs that are not complete stay lines of their own.

    The area has every value: also those of the steps that a point is the mean of.
    """
    own = [one for one in found if one.variant == label]
    means = [one for one in own if not one.run]
    runs = [one for one in own if one.run and one.complete]
    strands = []
    few = len(runs) < _FEWEST_FOR_AREA
    for one in means:
        if not few or any(list(run.lows) != list(run.highs) for run in runs):
            strands.append(Strand(label, color, "area", one.steps, (), one.lows, one.highs))
    if few and (len(runs) > 1 or not means):
        strands += [_strand(one, color, "run") for one in runs]
    for one in own:
        if one.run and not one.complete:
            strands.append(_strand(one, color, "unfinished"))
            if list(one.lows) != list(one.highs):
                strands.append(Strand(label, color, "area", one.steps, (), one.lows, one.highs))
    strands += [replace(_strand(one, color, "mean"), dots=metric.of_validations) for one in means]
    return strands


def _strand(one: Curve, color: int, kind: str) -> Strand:
    return Strand(one.variant, color, kind, one.steps, one.values)
