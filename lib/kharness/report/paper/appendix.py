"""The appendix on reproducibility, as the checklists of conferences ask for it, and BibTeX of what was used.

What to cite for an optimizer stands with it, as CITED, and the entry in the references.bib of its folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kharness.config.places import model_folder
from kharness.report.collection import REPLICATE_AXIS, why_incomplete
from kharness.report.comparison_table import unstable_words
from kharness.report.judging.judgment import Verdict
from kharness.report.overview.compared import compared
from kharness.report.runs import RunData, fields_in
from kharness.report.summary import Summary
from kharness.report.writing.caveats import caveat_lines
from kharness.runs.files import MATRIX_JSON
from kharness.runs.matrix_plan import refused
from monitoring.counts import counted
from monitoring.dropins import DropIns

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
    lines = [f"{name}: {command}" for name, command in summary.commands.items()]
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
    settings, given = fields_in(summary.plan, "settings"), summary.settings
    planned = str(settings.get("REPORT_BASELINE") or "")
    if summary.plan and planned != given.baseline:
        lines.append(f"the baseline was planned as {planned or 'the first variant'}, and is {given.baseline}")
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


_ENTRIES = "references.bib"
_METHODS = Path(__file__).with_name(_ENTRIES)
_ROOT = Path(__file__).resolve().parents[4]

# What start records name -> its modules, which are read and not imported: a report needs no torch.
KINDS = {
    "optimizer": DropIns("optimizer", "kharness.training.optimizers"),
    "pruning": DropIns("pruning method", "kharness.training.pruning"),
    "dataset": DropIns("dataset", "kharness.training.datasets"),
}
METHODS = {
    "blocked": ["dunnett1955", "landemets1983"],
    "baseline_apart": ["dunnett1955", "satterthwaite1946", "landemets1983"],
    "variant_apart": ["dunnett1955", "student1908", "landemets1983"],
    "each_apart": ["dunnett1955", "welch1947", "landemets1983"],
    "split_plot": ["dunnett1955", "satterthwaite1946", "landemets1983"],
    "paired": ["student1908", "landemets1983"],
    "welch": ["welch1947", "landemets1983"],
}
"""Sources of each way to judge a comparison (docs/statistics-formulas.md)."""


def bibliography(summary: Summary) -> str:
    """Return the BibTeX entries of this report, by key; what has no entry here is named in a comment."""
    keys = _of_judging(summary)
    known = dict(entries(_METHODS))
    unknown = []
    for name, file in dict.fromkeys(_used(summary)):
        cited = cited_by(file) if file else ()
        keys.update(cited)
        if file and cited:
            known.update(entries(file.with_name(_ENTRIES)))
        else:
            unknown.append(name)
    unknown += [key for key in sorted(keys) if key not in known]
    lines = [f"% no entry for {name}" for name in unknown]
    return "\n".join([*lines, *(known[key] for key in sorted(keys) if key in known)]) + "\n"


def entries(path: Path) -> Mapping[str, str]:
    """Return every entry of a file by its key; of none, nothing."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.findall(r"^(@\w+\{(\w+),\n.*?^\})$", text, flags=re.M | re.S)
    return {key: text for text, key in found}


def cited_by(module: Path) -> Sequence[str]:
    """Return CITED of a drop-in or of a model.py: keys in the references.bib beside it.

    It is read and not imported, for a report works without torch.
    """
    for node in ast.parse(module.read_bytes()).body if module.is_file() else ():
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CITED":
            found: Sequence[str] = ast.literal_eval(node.value)
            return found
    return ()


def _of_judging(summary: Summary) -> set[str]:
    keys: set[str] = set()
    if any(one.verdict is Verdict.SAME for one in summary.conclusions.comparisons):
        keys.add("schuirmann1987")
    if summary.aggregates:
        keys.add("agarwal2021")
    for one in [*summary.conclusions.comparisons, *summary.conclusions.effects]:
        keys.update(METHODS.get(one.method, []))
        if len(one.looks) > 1:
            keys.add("howard2021")
    return keys


def _used(summary: Summary) -> Iterator[tuple[str, Path | None]]:
    """Yield what the runs used, each with the file that says what to cite for it."""
    starts = [cell.run.start for cell in summary.cells if cell.run.start]
    for what, known in KINDS.items():
        for start in starts:
            if name := fields_in(start, what).get("name"):
                yield str(name), known.path(str(name))
    for start in starts:
        if model := fields_in(start, "config").get("MODEL"):
            yield str(model), model_folder(_ROOT, str(model)) / "model.py"
