"""The comparison as a table: one row per variant, the runs it rests on, mean and deviation of each metric."""

from __future__ import annotations

from collections.abc import Sequence

from kharness.config.writing import ABSENT, Table
from kharness.report.collection import SIDE, CellResult, Variant, why_incomplete
from kharness.report.metrics import Metric
from kharness.report.summary import Summary
from kharness.runs.status import FAILED, resumed_words

EXPLANATION = (
    "Mean ± sample standard deviation over seeds; n is the number of complete runs out of those planned, and "
    "a number that rests on fewer says so. One run has no deviation. Means alone name no winner."
)


def comparison(summary: Summary) -> Table:
    """Variants in the order of the plan; of the metrics those that a run has."""
    # the axes of settings that are changed one at a time would be columns of one value
    axes = [] if summary.included_axes or summary.is_comparison else summary.variant_axes
    metrics = summary.table_metrics
    rows = [
        [
            *([variant.values[SIDE]] if summary.is_comparison else []),
            *([variant.values.get(axis, ABSENT) for axis in axes] or [variant.label]),
            f"{len(variant.complete)}/{len(variant.cells)}",
            *(statistic_words(variant, metric) for metric in metrics),
        ]
        for variant in summary.variants
    ]
    alone = "variant" if summary.included_axes else "model" if summary.plan else "run"
    named = ["side", "variant"] if summary.is_comparison else axes or [alone]
    return Table([*named, "n", *(metric.label for metric in metrics)], rows, text_columns=len(named))


def each_run(summary: Summary) -> Table:
    """Every planned run with its status, how far it came, and its own numbers."""
    metrics = summary.table_metrics
    rows = [
        [
            cell.name,
            cell.run.shown_status,
            _steps(cell),
            *(number_words(cell.number(metric), metric) for metric in metrics),
        ]
        for cell in summary.cells
    ]
    return Table(["run", "status", "steps", *(metric.label for metric in metrics)], rows, text_columns=2)


def incomplete_lines(summary: Summary) -> list[str]:
    """One line for each run that no mean contains, known failures apart (`quarantined_lines`)."""
    return [f"{cell.name}: {why_incomplete(cell)}" for cell in unexpected(summary)]


def unexpected(summary: Summary) -> Sequence[CellResult]:
    """Runs that are not complete and not in quarantine."""
    return [cell for cell in summary.incomplete if not cell.known_failure]


def quarantined_lines(summary: Summary) -> list[str]:
    """One line for each known failure of the plan, whatever became of it."""
    return [
        f"{cell.name}: {why_incomplete(cell)}; known: {cell.known_failure}"
        for cell in summary.cells
        if cell.known_failure
    ]


def unstable_words(cell: CellResult) -> str:
    """Why a run that is complete is not to be relied on."""
    causes = [attempt.reason or attempt.cause or FAILED for attempt in cell.run.failed_attempts]
    words = "; ".join(filter(None, [*causes, resumed_words(cell.run.start)]))
    return f"{cell.name}: unstable, complete only in a later attempt ({words})"


def statistic_words(variant: Variant, metric: Metric) -> str:
    """`98.50 ± 0.28`, with the number of runs where it is not that of all complete ones."""
    found = variant.statistic(metric)
    if found.mean is None:
        return ABSENT
    text = number_words(found.mean, metric)
    if found.std is not None:
        text += f" ± {number_words(found.std, metric)}"
    return text if found.n == len(variant.complete) else f"{text} (n={found.n})"


def number_words(number: float | None, metric: Metric) -> str:
    """Return a number of a metric in the unit of its label, `-` for None."""
    return ABSENT if number is None else f"{number * metric.scale:.{metric.digits}f}"


def _steps(cell: CellResult) -> str:
    if cell.run.last_step is None:
        return ABSENT
    planned = cell.run.num_steps  # a program need not say how many it will take
    return f"{cell.run.last_step}/{planned}" if planned else str(cell.run.last_step)
