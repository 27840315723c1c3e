"""Caveats of a comparison whose runs are all complete: other sources, other work on the machine."""

from __future__ import annotations

from kharness.report.summary import Summary
from kharness.report.writing.other_work import other_work_lines
from kharness.runs.matrix_plan import has_other_sources

# So many runs are named; summary.json has all.
MOST_NAMED = 5


def caveat_lines(summary: Summary) -> list[str]:
    """A sentence for each kind."""
    return [*_sources_lines(summary), *other_work_lines(summary)]


def other_sources(summary: Summary) -> list[str]:
    """The names of the runs that began with other sources than the matrix was planned with."""
    begun = [cell for cell in summary.cells if cell.run.start]
    return [cell.name for cell in begun if has_other_sources(cell.run.directory, summary.plan)]


def _sources_lines(summary: Summary) -> list[str]:
    names = other_sources(summary)
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [
        f"{len(names)} of {len(summary.cells)} runs began with other sources than the matrix was planned "
        f"with: {', '.join(names[:MOST_NAMED])}{more}"
    ]
