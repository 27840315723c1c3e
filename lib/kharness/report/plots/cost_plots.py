"""Plots of cost: time per step, time to the target, quality against its price."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.curves import SCALE_WORDS, Scale, Strand, scale_of
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.pareto import Front
from kharness.report.judging.profiles import R_MAX, Profile, RunTime, VariantTimes, WorkloadTimes
from kharness.report.metrics import metric_named
from kharness.report.plots.plot import MOST_IN_COLOR, Plot, in_turns, plot_of
from kharness.report.plots.rows import MOST_ROWS, MarkedRow, PlotMark, RowPlot, bar, percent, run_dots
from kharness.report.summary import Summary
from kharness.runs.status import COMPLETE
from monitoring.counts import counted

_FRONT = "Blue: on the front, nothing is shown to beat it; gray: beaten. Means of complete runs."
# Points that have their names beside them; of a front of more, the best.
_MOST_NAMED, _NAMED_OF_MANY = 8, 3
# Percent of the frame: points that are as near as this have their names moved apart.
_NAME_HEIGHT, _NAME_WIDTH = 7.5, 30.0
# The width of a letter of a small name.
_LETTER_WIDTH = 1.8
# Points of a plot that has small names: more leave no room.
_MOST_FAINT = 40


METRIC = "sec_per_step"
QUANTILES = (5, 25, 50, 75, 95)
# Of several runs: where their lower and their upper quantiles end, the outer ones first.
_ENDS = (("thin", 0, 4), ("thick", 1, 3))


@dataclass(frozen=True)
class Spread:
    """Milliseconds per step of one run."""

    variant: str
    run: str
    status: str
    num_steps: int
    quantiles: Sequence[float]
    """At QUANTILES."""
    highest: float


def spreads_of(summary: Summary) -> list[Spread]:
    """Return the spread of each run that recorded the time of its steps."""
    if METRIC not in summary.drawn:
        summary.drawn[METRIC] = _measured(summary)
    found: list[Spread] = summary.drawn[METRIC]
    return found


def _measured(summary: Summary) -> list[Spread]:
    import numpy as np

    found = []
    for variant in summary.variants:
        for cell in variant.cells:
            seconds = cell.run.metric("step", METRIC).values
            if seconds:
                values = np.asarray(seconds) * 1000
                quantiles = [float(q) for q in np.percentile(values, QUANTILES)]
                highest = float(values.max())
                found.append(
                    Spread(variant.label, cell.name, cell.run.status, len(values), quantiles, highest)
                )
    return found


def time_per_step(summary: Summary, most: int = MOST_ROWS) -> list[RowPlot]:
    """Return the spread of the step time of each variant, the fastest first; nothing without one."""
    of_variant: dict[str, list[Spread]] = {}
    for one in spreads_of(summary):
        of_variant.setdefault(one.variant, []).append(one)
    medians = {name: statistics.median(one.quantiles[2] for one in own) for name, own in of_variant.items()}
    shown = sorted(medians, key=lambda name: medians[name])[:most]
    if not shown:
        return []
    axis = Scale("linear", 0.0, 1.02 * max(one.quantiles[-1] for name in shown for one in of_variant[name]))
    rows = []
    for name in shown:
        own = of_variant[name]
        quantiles = list(zip(*(one.quantiles for one in own), strict=True))
        bars = [bar(look, min(quantiles[low]), max(quantiles[high]), axis) for look, low, high in _ENDS]
        dots = run_dots([(one.status == COMPLETE, one.quantiles[2]) for one in own], axis)
        rows.append(MarkedRow(name, [*bars, *dots], f"{medians[name]:.2f} ms"))
    caption = "Dot: median of a run; thick: middle half of the steps; thin: 5 % to 95 %, over all runs"
    return [RowPlot("Time per step (ms)", caption + _left_out(shown, medians, summary), rows, axis.ticks(5))]


@dataclass(frozen=True)
class TargetUnit:
    """The unit in which the time to the target is measured: seconds or steps."""

    title: str
    of_run: Callable[[RunTime], float | None]
    median: Callable[[VariantTimes], float | None]

    def of_runs(self, variant: VariantTimes) -> Sequence[float]:
        return [found for run in variant.runs if run.reached and (found := self.of_run(run)) is not None]

    def words(self, median: float | None) -> str:
        if median is None:
            return "-"
        if not math.isfinite(median):
            return "never"
        if self is STEPS:
            return f"{median:,.0f}"
        return f"{median:,.1f} s" if median >= 10 else f"{median:.2f} s"


SECONDS = TargetUnit("Time to target (s)", lambda run: run.seconds, lambda of: of.median_seconds)
STEPS = TargetUnit("Steps to target", lambda run: run.step, lambda of: of.median_step)


def unit_of(summary: Summary) -> tuple[TargetUnit, list[WorkloadTimes]]:
    """Return seconds, or steps where no time counts, and the workloads on which a run reached its target."""
    unit = next((unit for unit in (SECONDS, STEPS) if _reached(summary, unit)), SECONDS)
    return unit, _reached(summary, unit)


def _reached(summary: Summary, unit: TargetUnit) -> list[WorkloadTimes]:
    return [one for one in summary.conclusions.times if any(unit.of_runs(v) for v in one.variants)]


def time_to_target(summary: Summary, most: int = MOST_ROWS) -> list[RowPlot]:
    """Return when runs reached the target, the fastest variant first; a picture per workload."""
    found = []
    unit, times = unit_of(summary)
    for one in times:
        medians = {variant.variant: unit.median(variant) for variant in one.variants}
        known = {name: median for name, median in medians.items() if median is not None}
        ordered = sorted(one.variants, key=lambda variant: known.get(variant.variant, math.inf))
        shown = ordered[:most]
        highest = max(time for variant in one.variants for time in unit.of_runs(variant))
        # Right of the last dot there is room for the crosses of runs that did not arrive.
        axis = Scale("linear", 0.0, 1.12 * highest)
        rows = []
        for variant in shown:
            median = medians[variant.variant]
            marks = [PlotMark("point soft", percent(time, axis)) for time in unit.of_runs(variant)]
            if median is not None and math.isfinite(median):
                marks.append(PlotMark("median", percent(median, axis)))
            if any(run.reached is False for run in variant.runs):
                marks.append(PlotMark("missed", percent(1.07 * highest, axis)))
            rows.append(MarkedRow(variant.variant, marks, _words(unit.words(median), variant)))
        workload = f" on {one.workload}" if len(times) > 1 else ""
        what = f"{one.target}, {one.target.chosen_by}"
        caption = f"{what}. Dot: a run; bar: median; x: over without having reached it"
        found.append(
            RowPlot(
                f"{unit.title}{workload}", caption + _left_out(shown, ordered, summary), rows, axis.ticks(5)
            )
        )
    return found


def _words(median: str, variant: VariantTimes) -> str:
    missed = sum(run.reached is False for run in variant.runs)
    if not missed or len(variant.runs) == 1:
        return median
    never = f"{missed} of {len(variant.runs)} never"
    return never if median == "never" else f"{median}, {never}"


def _left_out(shown: Sequence[object], whole: Collection[object], summary: Summary) -> str:
    many = counted(len(whole), summary.variant_word)
    return f". The {len(shown)} fastest of {many}." if len(shown) < len(whole) else "."


def profile(conclusions: Conclusions) -> list[Plot]:
    """Return the share of workloads on which each variant is within a factor of the fastest.

    Of a single workload nothing: there it says no more than the times to the target.
    """
    found = [one for one in conclusions.profiles if len(one.ratios) > 1]
    if not found:
        return []
    best = sorted(found, key=lambda one: -one.score)
    strands = [Strand("", -1, "other", *_rises(one)) for one in best[MOST_IN_COLOR:]]
    strands += [
        Strand(f"{one.variant} {one.score:.3f}", i, "mean", *_rises(one))
        for i, one in enumerate(best[:MOST_IN_COLOR])
    ]
    others = counted(len(best) - MOST_IN_COLOR, "other")
    drawn, equal = in_turns(strands)
    plot = plot_of(
        "performance_profile",
        "Performance profile",
        drawn,
        x_label="time to target, as a multiple of the fastest variant's",
        scale=Scale("linear", 0.0, 1.05),
        said=[
            f"Over {len(best[0].ratios)} workloads. Number: area under the line, 1 for the fastest on all.",
            *([f"Gray: {others}."] if len(best) > MOST_IN_COLOR else []),
            *equal,
        ],
    )
    return [replace(plot, quantity="share of workloads")]


def _rises(one: Profile) -> tuple[list[float], list[float]]:
    """Return the exact corners of rho: it rises at each workload's ratio."""
    xs, ys = [1.0], [0.0]
    for done, ratio in enumerate(sorted(ratio for ratio in one.ratios.values() if ratio <= R_MAX), start=1):
        xs += [ratio, ratio]
        ys += [ys[-1], done / len(one.ratios)]
    return [*xs, R_MAX], [*ys, ys[-1]]


def prices(fronts: Sequence[Front]) -> Sequence[Plot]:
    """Return quality over each kind of cost that was measured; of several workloads each is named."""
    several = len({front.workload for front in fronts}) > 1
    return [
        replace(plot, title=f"{plot.title}, {front.workload}") if several else plot
        for front in fronts
        if front.points
        for plot in [price(front)]
    ]


def price(front: Front) -> Plot:
    """Return quality over one kind of cost, a point per variant; those on the front are filled and named."""
    quality, cost = metric_named(front.quality), metric_named(front.cost)
    at = {name: (paid * cost.scale, good * quality.scale) for name, (good, paid) in front.points.items()}
    paid = [x for x, _ in at.values()]
    wide = max(paid) > 10 * min(paid) > 0
    x = scale_of(paid, "log") if wide else Scale("linear", 0.0, 1.1 * max(paid) or 1.0)
    y = scale_of([value for _, value in at.values()])
    members = [name for name in front.points if name in front.members]
    best = sorted(members, key=lambda name: at[name][1], reverse=bool(quality.higher_is_better))
    named = best if len(best) <= _MOST_NAMED else best[:_NAMED_OF_MANY]
    beaten = f", {len(front.dominated)} of {len(at)} are shown to be beaten" if front.dominated else ""
    title = f"{quality.label} by {cost.label}"
    # The front is drawn above the others.
    looks = [("point beaten", [name for name in at if name not in members]), ("point", members)]
    places = {
        name: (x.at(paid) / 10, round(100 - y.at(good) / 10, 1), name) for name, (paid, good) in at.items()
    }
    placed = _placed([places[name] for name in named])
    stairs = _stairs([at[name] for name in members], higher_is_better=bool(quality.higher_is_better))
    missing = f"not measured: {len(front.unmeasured)} of {len(front.unmeasured) + len(at)} variants"
    return Plot(
        name="pareto_front",
        title=title,
        x_label=", ".join(filter(None, (cost.label, SCALE_WORDS[x.kind]))),
        strands=[*stairs, *(_points(look, {name: at[name] for name in names}) for look, names in looks)],
        x=x,
        y=y,
        said=[_FRONT],
        quantity=missing if front.unmeasured else "",
        names=placed,
        faint_names=_with_room([one for name, one in places.items() if name not in members], placed, places),
        in_words=f"{title}: on the front {', '.join(named)}{beaten}.",
    )


def _points(look: str, at: Mapping[str, tuple[float, float]]) -> Strand:
    titles = [f"{name}: {good:.4g}, {paid:.4g}" for name, (paid, good) in at.items()]
    return Strand("", 0, look, [x for x, _ in at.values()], [y for _, y in at.values()], titles=titles)


def _stairs(points: Sequence[tuple[float, float]], *, higher_is_better: bool) -> list[Strand]:
    """Return a line through the front, the cheapest first: what each price buys at best."""
    sign, xs, ys = 1 if higher_is_better else -1, list[float](), list[float]()
    for cost, quality in sorted(points):
        if not ys or sign * quality > sign * ys[-1]:
            xs += [cost] * (2 if ys else 1)
            ys += [*ys[-1:], quality]
    return [Strand("", 0, "run", xs, ys)] if len(xs) > 1 else []


def _placed(wanted: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return names beside their points, moved down where they would lie on one that is placed already."""
    placed: list[tuple[float, float, str]] = []
    for left, top, name in sorted(wanted, key=lambda one: one[1]):
        near = [other for other in placed if abs(other[0] - left) < _NAME_WIDTH]
        lowest = max((other[1] for other in near), default=-math.inf)
        placed.append((left, round(max(top, lowest + _NAME_HEIGHT), 1), name))
    return placed


def _with_room(
    wanted: Sequence[tuple[float, float, str]],
    placed: Sequence[tuple[float, float, str]],
    points: Mapping[str, tuple[float, float, str]],
) -> list[tuple[float, float, str]]:
    """Return the names that fit, and cover neither another name nor the point of another variant."""
    found: list[tuple[float, float, str]] = []
    for left, top, name in wanted if len(points) <= _MOST_FAINT else ():
        low, high = _ends_of((left, top, name))
        names = [_ends_of(one) for one in (*placed, *found) if abs(one[1] - top) < _NAME_HEIGHT]
        others = [
            (at, at)
            for at, up, other in points.values()
            if other != name and abs(up - top) < _NAME_HEIGHT / 2
        ]
        if 0 <= low < high <= 100 and all(last <= low or first >= high for first, last in (*names, *others)):
            found.append((left, top, name))
    return found


def _ends_of(one: tuple[float, float, str]) -> tuple[float, float]:
    """Return where a name begins and ends, with its point, in percent from the left."""
    left, _, name = one
    width = _LETTER_WIDTH * (len(name) + 1)
    return (left - width, left) if left > Plot.named_before else (left, left + width)
