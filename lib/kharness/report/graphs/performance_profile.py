"""Performance profiles: the share of workloads on which a variant is within a factor of the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kharness.report.graphs import Numbers
from kharness.report.graphs._canvas import (
    BACKDROP,
    MARKERS,
    MAX_TOGETHER,
    PALETTE,
    canvas,
    notes,
    nothing_to_draw,
)
from kharness.report.graphs._panels import turns
from kharness.report.judging.profiles import R_MAX, Profile, finite
from kharness.report.summary import Summary
from monitoring.counts import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Performance profile"


def applies(summary: Summary) -> bool:
    """Whether there are several workloads."""
    return len(summary.conclusions.metrics) > 1


def numbers(summary: Summary) -> Numbers:
    """Each variant's score, and its time to target on each workload over that of the fastest there."""
    profiles = _profiles(summary)
    workloads = sorted({workload for profile in profiles for workload in profile.ratios})
    return Numbers(
        ["variant", "score", *(f"ratio on {workload}" for workload in workloads)],
        [
            [
                profile.variant,
                profile.score,
                *(finite(profile.ratios.get(workload)) for workload in workloads),
            ]
            for profile in profiles
        ],
    )


def draw(summary: Summary) -> Figure:
    profiles = _profiles(summary)
    if not profiles:
        what = "a profile needs several workloads (models, datasets) and variants, and all runs over"
        return nothing_to_draw(TITLE, summary.title, summary, what)
    best = sorted(profiles, key=lambda profile: -profile.score)
    named, others = best[:MAX_TOGETHER], best[MAX_TOGETHER:]
    num_workloads = len(profiles[0].ratios)
    subtitle = (
        f"{summary.title}\nover {num_workloads} workloads   "
        "score: area under the curve, 1 is the fastest everywhere"
    )
    if others:
        subtitle += f"   gray: {counted(len(others), 'other')}"
    legend = 1.5 + 0.075 * max(len(profile.variant) for profile in named)
    figure = canvas(6.4 + legend, 3.6, TITLE, subtitle, notes(summary, []))
    figure.subplots_adjust(right=1 - legend / (6.4 + legend))
    _draw_profiles(figure.add_subplot(), named, others)
    return figure


def _profiles(summary: Summary) -> Sequence[Profile]:
    """None on a single workload: there a profile says no more than the times to the target."""
    return [profile for profile in summary.conclusions.profiles if len(profile.ratios) > 1]


def _draw_profiles(axes: Axes, named: Sequence[Profile], others: Sequence[Profile]) -> None:
    for profile in others:
        axes.plot(*_steps(profile), color=BACKDROP, lw=0.9, zorder=1)
    equal = turns([tuple(map(tuple, _steps(profile))) for profile in named])
    for i, (profile, turn) in enumerate(zip(named, equal, strict=True)):
        label = f"{profile.variant}  {profile.score:.3f}"
        look: Any = {"color": PALETTE[i], "lw": 2, "ls": turn.dashes(), "marker": MARKERS[i], "ms": 5}
        every = (i / (2 * len(named)), 0.25)  # where curves lie on each other in part, each still shows
        axes.plot(*_steps(profile), markevery=every, label=label, zorder=3 + i, **look)
    axes.set_xlim(1, R_MAX)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("time to target, as a multiple of the fastest variant's")
    axes.set_ylabel("share of workloads")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="score", alignment="left")


def _steps(profile: Profile) -> tuple[list[float], list[float]]:
    """The exact corners of rho: it rises at each workload's ratio."""
    ratios = sorted(ratio for ratio in profile.ratios.values() if ratio <= R_MAX)
    xs, ys = [1.0], [0.0]
    for done, ratio in enumerate(ratios, start=1):
        xs += [ratio, ratio]
        ys += [ys[-1], done / len(profile.ratios)]
    return [*xs, R_MAX], [*ys, ys[-1]]
