"""Caveats of complete runs: other sources, other work on the machine, metrics that decide nothing."""

from __future__ import annotations

import shlex

from kharness.config.make.typed import typed_setting
from kharness.report.summary import Summary
from kharness.runs.matrix_plan import has_other_sources
from monitoring.counts import cut_list
from monitoring.journal.fields.directions import directions_needed, missing_direction, without_direction

# So many runs are named; summary.json has all.
MOST_NAMED = 5


def caveat_lines(summary: Summary) -> list[str]:
    """A sentence for each kind."""
    return [*_sources_lines(summary), *other_work_lines(summary), *_directions_lines(summary)]


def other_sources(summary: Summary) -> list[str]:
    """The names of the runs that began with other sources than the matrix was planned with."""
    begun = [cell for cell in summary.cells if cell.run.start]
    return [cell.name for cell in begun if has_other_sources(cell.run.directory, summary.plan)]


def _sources_lines(summary: Summary) -> list[str]:
    names = other_sources(summary)
    if not names:
        return []
    return [
        f"{len(names)} of {len(summary.cells)} runs began with other sources than the matrix was planned "
        f"with: {cut_list(names, MOST_NAMED)}"
    ]


def _directions_lines(summary: Summary) -> list[str]:
    """Which losses and scores decide nothing, as one variant has them, for their direction is not known."""
    run = next((cell.run for cell in summary.cells if cell.run.complete), None)
    if run is None:
        return []
    told = {metric.name for metric, _ in summary.conclusions.metrics.values()}  # with the verdict
    names = [one for one in without_direction(run.recorded, summary.settings.better) if one not in told]
    if not names:
        return []
    in_make = f"{missing_direction(names[0])}, beside CONFIG_REPORT_METRIC={shlex.quote(names[0])}"
    return [directions_needed(names, typed=typed_setting(in_make, ""))]


def other_work_lines(summary: Summary) -> list[str]:
    """Whose times do not count, where it is not known, else how much there was; none before a run began.

    Other work on the machine during a run makes its wall times useless for comparing variants.
    """
    begun = [cell for cell in summary.cells if cell.run.start]
    shares = {cell.name: cell.run.other_work for cell in begun}
    known = {name: share for name, share in shares.items() if share is not None}
    crowded = [cell.name for cell in begun if cell.run.crowded]
    if not begun:
        return []
    if not known:
        return ["other work on the machine was not measured: times may hold it"]
    lines = []
    if crowded:
        named = cut_list([f"{name} {known[name]:.0%}" for name in crowded], MOST_NAMED)
        lines.append(
            f"times of {len(crowded)} of {len(begun)} runs do not count: other work kept more than "
            f"{summary.settings.other_work_limit:.0%} of the processors busy ({named})"
        )
    else:
        lines.append(f"other work on the machine: at most {max(known.values()):.0%} of the processors")
    if len(known) < len(begun):
        lines.append(f"other work was not measured during {len(begun) - len(known)} of {len(begun)} runs")
    return lines


def other_work_json(summary: Summary) -> dict[str, object]:
    """Return the other work of all runs; each run has its own share among its metrics."""
    return {
        "limit": summary.settings.other_work_limit,
        "over_limit": [cell.name for cell in summary.cells if cell.run.crowded],
        "not_measured": [
            cell.name for cell in summary.cells if cell.run.start and cell.run.other_work is None
        ],
    }
