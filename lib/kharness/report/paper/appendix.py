"""The appendix on reproducibility, as the checklists of conferences ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kharness.report.collection import REPLICATE_AXIS, why_incomplete
from kharness.report.comparison_table import unstable_words
from kharness.report.overview.compared import compared
from kharness.report.runs import RunData
from kharness.report.summary import Summary
from kharness.report.writing.caveats import caveat_lines
from kharness.runs.files import MATRIX_JSON
from kharness.runs.matrix_plan import refused
from monitoring.counts import counted

NOT_MEASURED = "not measured"

MOST_NAMED = 8
"""Variants that are named before their seeds."""

MOST_COMMANDS = 20
"""Commands of runs that are printed; those of more differ by their settings alone."""


def appendix(summary: Summary) -> Mapping[str, Sequence[str]]:
    """Return paragraphs by heading: set-up, runs, seeds, compute, deviations from the plan."""
    return {
        "Set-up": [f"{name}: {text}" for name, text in compared(summary).facts.items()],
        "Commands": _commands(summary),
        "Seeds": _seeds(summary),
        "Exclusions": _exclusions(summary),
        "Deviations from the plan": _deviations(summary),
        "Compute": _compute(summary),
    }


def _commands(summary: Summary) -> list[str]:
    cells = summary.plan.get("cells")
    if not isinstance(cells, Sequence):
        return []
    lines = [f"{cell['name']}: {cell['command']}" for cell in cells if cell.get("command")]
    more = len(lines) - MOST_COMMANDS
    return [
        *lines[:MOST_COMMANDS],
        *([f"{more} more in {MATRIX_JSON}, each with its own directory"] if more > 0 else []),
    ]


def _seeds(summary: Summary) -> list[str]:
    names: dict[str, list[str]] = {}
    for variant in summary.variants:
        seeds = ", ".join(cell.seed or "none" for cell in variant.complete) or "no complete run"
        names.setdefault(seeds, []).append(variant.label)
    lines = [
        f"{'; '.join(of) if len(of) <= MOST_NAMED else counted(len(of), 'variant')}: {seeds}"
        for seeds, of in names.items()
    ]
    planned = summary.settings.seeds_planned
    rule = (
        f"verdicts were planned at {counted(planned, 'seed')}, and at no other number"
        if planned
        else "the number of seeds was left open: verdicts hold over all looks"
    )
    return [*lines, rule] if REPLICATE_AXIS in summary.axes else lines


def _exclusions(summary: Summary) -> list[str]:
    lines = [f"{cell.name}: {why_incomplete(cell)}" for cell in summary.incomplete]
    lines += [f"{name}: refused before it ran, {why}" for name, why in refused(summary.plan).items()]
    lines += [f"counted, {unstable_words(cell)}" for cell in summary.cells if cell.run.unstable]
    return lines or ["none: every planned run is complete and counted"]


def _deviations(summary: Summary) -> list[str]:
    lines = []
    settings, given = summary.plan.get("settings"), summary.settings
    if isinstance(settings, Mapping):
        planned = str(settings.get("REPORT_BASELINE") or "")
        if planned != given.baseline:
            lines.append(
                f"the baseline was planned as {planned or 'the first variant'}, and is {given.baseline}"
            )
        metric = str(settings.get("REPORT_METRIC") or "")
        if metric and metric != given.metric:
            lines.append(f"the metric was planned as {metric}, and is {given.metric}")
        confidence = settings.get("REPORT_CONFIDENCE")
        if isinstance(confidence, (int, float)) and confidence != given.confidence:
            lines.append(f"the confidence was planned as {confidence:g}, and is {given.confidence:g}")
    seeds = dict.fromkeys(cell.seed for cell in summary.cells if cell.seed)
    first = given.first_seeds
    if first and set(first) != set(seeds):
        lines.append(f"planned first with seeds {', '.join(first)}; these are {', '.join(seeds)}")
    lines += caveat_lines(summary)
    return lines or ["none"]


def _compute(summary: Summary) -> list[str]:
    runs = [cell.run for cell in summary.cells if cell.run.start]
    failed = sum(len(run.failed_attempts) for run in runs) + sum(not run.complete for run in runs)
    joules = _sum([run.at_end("energy_joules") for run in runs])
    parts = {
        "wall time of all trainings": _hours(_sum(_elapsed(runs))),
        "CPU time of all trainings": _hours(_sum([run.at_end("training_cpu_seconds") for run in runs])),
        "energy of the GPUs": NOT_MEASURED if joules is None else f"{joules / 3.6e6:.3g} kWh",
    }
    tries = f"{counted(len(runs), 'run')}, and {counted(failed, 'attempt')} that did not complete"
    return [tries, *(f"{name}: {text}" for name, text in parts.items())]


def _elapsed(runs: Sequence[RunData]) -> list[float | None]:
    """Return how long each run took with all of its attempts; None for one that no runner watched."""
    return [
        sum(one.ended - one.started for one in run.tried if one.ended is not None) if run.tried else None
        for run in runs
    ]


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return NOT_MEASURED
    return f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.0f} s"
