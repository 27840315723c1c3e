"""`make compare`: B against A, each a run, a matrix or a variant of one, in quality, time and memory.

With `--fail-on-regression` the answer is an exit code for CI: 3 if B is worse, 0 if that is not shown, 2 if
it cannot be decided.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.make.typed import typed_comparison
from kharness.config.refused import nearest
from kharness.config.writing import Table
from kharness.report.collection import (
    REPLICATE_AXIS,
    CellResult,
    Collection,
    Variant,
    affects_of,
    read_collection,
)
from kharness.report.comparison_table import statistic_words
from kharness.report.errors import ReportError
from kharness.report.judging.baseline import is_within, matching, open_place, planned_baseline
from kharness.report.judging.budgets import budget_of, budget_words
from kharness.report.judging.conclusions import chosen_after_looking, decisive_metric
from kharness.report.judging.judgment import Comparison, Verdict, judge
from kharness.report.judging.main_effects import main_effects
from kharness.report.judging.sentences import chosen_words, difference_words, levels_words, verdict_words
from kharness.report.metrics import Metric, metric_named, of_split
from kharness.report.runs import MOST_PLOTTED, fields_in
from kharness.report.settings import ReportSettings
from kharness.runs.command import read_command, words_besides
from kharness.runs.latest import compared_place
from kharness.runs.matrix_plan import read_matrix_json
from kharness.runs.rundir import has_plan
from monitoring.counts import counted
from monitoring.errors import RunDirectoryError
from monitoring.journal import bit_equal
from monitoring.journal.fields import row_of
from monitoring.journal.fields.directions import MOST_NAMED, without_direction
from monitoring.journal.run_json import read_run_json
from monitoring.where import spellings

# With more pairs than this only the decisive metric is shown.
_MOST_PAIRS = 8
# Differences of configuration that are printed.
_MOST_DIFFERENCES = 12
_HASH = re.compile(r"[0-9a-f]{32,}")


@dataclass(frozen=True)
class Compared:
    """Every variant of B with its namesake of A."""

    places: tuple[str, str]
    """A and B as they were requested."""
    a: Collection
    b: Collection
    pairs: Sequence[tuple[Variant, Variant]]
    """(B's, A's)"""
    unmatched: Sequence[str]
    """Variants of one side that the other lacks, in words."""
    metric: Metric
    """The one that decides."""
    note: str
    """Why it is not the requested one."""
    results: Mapping[str, Sequence[Comparison]]
    """Metric to the comparisons of the pairs, the decisive one first; each metric is a family of its own."""

    @property
    def decisive(self) -> Sequence[Comparison]:
        return self.results[self.metric.name]

    def __str__(self) -> str:
        return "\n".join(compare_lines(self))


def _one_of(text: str, place: Collection, other: str) -> str:
    """Return a place with the values of one of its variants, of the axes that the other place has chosen."""
    if compared_place(text)[1] or len(place.variants) == 1:
        return shlex.quote(text)
    chosen = {word.partition("=")[0].upper() for word in compared_place(other)[1].split()}
    values = [
        " ".join(f"{name}={value}" for name, value in variant.values.items() if name in (chosen or {name}))
        for variant in place.variants
    ]
    named = [f"{text}:{one}" for one in dict.fromkeys(values) if one]
    return shlex.quote(next((one for one in named if one != other), text))


def compare(a: str | Path, b: str | Path, given: Mapping[str, str] | None = None) -> Compared:
    """Compare two places; ReportError if one has no runs, or they share no variant.

    Judged by B's REPORT_… options, and those `given` on the command line.
    """
    a, b = str(a), str(b)
    first, second = open_place(a, given), open_place(b, given)
    pairs, unmatched = _pairs(first, second)
    if not pairs:
        raise ReportError(
            f"no variant of {b} has the axis values of one of {a}",
            hint="choose one of each: " + typed_comparison(_one_of(a, first, b), _one_of(b, second, a)),
        )
    metric, note = decisive_metric(second.cells, second.settings)
    _check_recorded(metric, [*first.cells, *second.cells], second.settings)
    whole = read_collection(first.directory, given) if first.directory == second.directory else None
    judged = {one.name: _judged(pairs, one, whole, second) for one in _metrics(metric, first, second)}
    results = _with_equal_bits(judged, metric, pairs)
    return Compared((a, b), first, second, pairs, unmatched, metric, note, results)


def _check_recorded(metric: Metric, cells: Sequence[CellResult], settings: ReportSettings) -> None:
    """ReportError for a metric that this call names and no run has."""
    if not settings.metric_given or any(cell.number(metric) is not None for cell in cells):
        return
    known = dict.fromkeys(name for cell in cells[:MOST_PLOTTED] for name in cell.run.recorded)
    near = (
        nearest(metric.name, known)
        or without_direction(known, {})
        or [one for one in known if row_of(one).better != "neither"]
    )
    named = f"name a metric that they have: {', '.join(near[:MOST_NAMED])}" if near else ""
    raise ReportError(f"no run has {metric.name}", hint=named or "compare runs that have recorded something")


def compare_lines(compared: Compared, columns: int = 0) -> list[str]:
    """Table, budgets and what was configured differently, for a terminal of so many columns (0: of any)."""
    several = len(compared.pairs) > 1
    lines = [f"A: {compared.places[0]}", f"B: {compared.places[1]}", "", *_table_lines(compared, columns), ""]
    shown = [one for name in _shown(compared) for one in compared.results[name]]
    chosen = chosen_words(shown)
    at_once = f", which hold at once for all {len(compared.pairs)} variants" if several and not chosen else ""
    lines.append(f"B - A: {levels_words(shown, compared.b.settings.confidence)}{at_once}{chosen}")
    if compared.note:
        lines.append(compared.note)
    for ours, theirs in compared.pairs[:_MOST_PAIRS]:
        a, b = (budget_words(budget_of([c.run for c in side.complete])) for side in (theirs, ours))
        lines.append(f"budget{f' of {ours.label}' if several else ''}: A {a}; B {b}")
    failures = dict.fromkeys(line for comparison in compared.decisive for line in comparison.failures)
    lines += [f"not counted: {line}" for line in failures]
    lines += compared.unmatched
    return [*lines, *_configuration_lines(compared)]


def _judged(
    pairs: Sequence[tuple[Variant, Variant]], metric: Metric, whole: Collection | None, b: Collection
) -> Sequence[Comparison]:
    """Pairs of one matrix with all that it planned or, where it did not, among all that could be chosen."""
    if whole is None or not whole.plan or not is_within(pairs, whole):
        return judge(pairs, [metric] * len(pairs), b.settings)
    chosen = chosen_after_looking(whole, pairs)
    if chosen is not None:
        return judge(pairs, [metric] * len(pairs), b.settings, chosen=chosen)
    planned = planned_baseline(whole).pairs
    found = judge(planned, [metric] * len(planned), b.settings, main_effects(planned))
    of_pair = {(one.variant, one.baseline): one for one in found}
    return [of_pair[ours.label, theirs.label] for ours, theirs in pairs]


def _with_equal_bits(
    results: Mapping[str, Sequence[Comparison]], decisive: Metric, pairs: Sequence[tuple[Variant, Variant]]
) -> Mapping[str, Sequence[Comparison]]:
    """Return the results with the verdict EQUAL where both sides have the same values in every record."""
    records = [
        _equal_records(ours, theirs) if results[decisive.name][i].difference == 0 else 0
        for i, (ours, theirs) in enumerate(pairs)
    ]

    def told(comparison: Comparison, equal: int) -> Comparison:
        if not equal or comparison.metric.is_cost or comparison.verdict is Verdict.NOT_COMPARABLE:
            return comparison
        reason = f"the same values in {'all ' if equal > 1 else ''}{counted(equal, 'record')}"
        return replace(comparison, verdict=Verdict.EQUAL, reason=reason)

    return {name: [*map(told, comparisons, records)] for name, comparisons in results.items()}


def _equal_records(ours: Variant, theirs: Variant) -> int:
    """Return the number of records of all runs if both sides have the same values in each, times and the like
    aside; 0 if not, or if that is unknown.
    """
    sides = [{cell.seed: cell.run for cell in side.cells} for side in (ours, theirs)]
    if len(ours.cells) == len(theirs.cells) == 1:
        sides = [dict.fromkeys(("",), next(iter(runs.values()))) for runs in sides]
    runs = [run for side in sides for run in side.values()]
    if len(runs) < len(ours.cells) + len(theirs.cells) or sides[0].keys() != sides[1].keys():
        return 0
    if not all(run.complete and run.start for run in runs):
        return 0
    equal = 0
    for seed, run in sides[0].items():
        # Records that only one of the two has are found from its side alone.
        both = [(run.directory, sides[1][seed].directory), (sides[1][seed].directory, run.directory)]
        found = [bit_equal.compare(one, other) for one, other in both]
        if any(one.difference or one.on_request for one in found):
            return 0
        equal += found[0].equal
    return equal


def _pairs(a: Collection, b: Collection) -> tuple[Sequence[tuple[Variant, Variant]], Sequence[str]]:
    """B's variants with A's, labeled A and B where the labels alone do not distinguish them."""
    found, unmatched, met = [], [], set()
    for variant in b.variants:
        partner = matching(variant, a.variants)
        if partner is None:
            unmatched.append(f"only B has {variant.label}")
            continue
        met.add(partner.label)
        labels = variant.label, partner.label
        if labels[0] == labels[1] or (variant.values and variant.values == partner.values):
            # A side without other variants calls its only one by its model.
            name = labels[0] if len(b.variants) > 1 else labels[1]
            labels = f"{name} (B)", f"{name} (A)"
        found.append((replace(variant, label=labels[0]), replace(partner, label=labels[1])))
    return found, [*unmatched, *(f"only A has {v.label}" for v in a.variants if v.label not in met)]


def _metrics(decisive: Metric, a: Collection, b: Collection) -> Sequence[Metric]:
    """The decisive one, the loss of the same set, time and memory, as far as both sides have them."""
    parts = of_split(decisive.name)
    names = [replace(parts, what="loss").on(parts.split)] if parts.split else []
    names += ["training_seconds", "sec_per_step", "peak_gpu_memory", "peak_cpu_memory"]
    names += ["energy_joules", "cost"]
    others = [metric_named(name) for name in names if name != decisive.name]
    return [decisive, *(metric for metric in others if _has(a, metric) and _has(b, metric))]


def _has(summary: Collection, metric: Metric) -> bool:
    return any(cell.run.complete and cell.number(metric) is not None for cell in summary.cells)


def _shown(compared: Compared) -> Sequence[str]:
    return list(compared.results) if len(compared.pairs) <= _MOST_PAIRS else [compared.metric.name]


def _table_lines(compared: Compared, columns: int) -> list[str]:
    """Return the table; where it is wider than the terminal, differences and verdicts stand below it."""
    whole = _table(compared)
    lines = whole.plain().splitlines()
    if not columns or max(map(len, lines)) <= columns:
        return lines
    narrow = Table(whole.header[:-2], [row[:-2] for row in whole.rows], whole.text_columns)
    lines = [*narrow.plain().splitlines(), ""]
    for *names, _, _, difference, verdict in whole.rows:
        lines += [f"{', '.join([*names, 'B - A'])}: {difference}", f"  {verdict}"]
    return lines


def _table(compared: Compared) -> Table:
    several = len(compared.pairs) > 1
    shown = _shown(compared)
    rows = []
    for i, (ours, theirs) in enumerate(compared.pairs):
        for name in shown:
            comparison = compared.results[name][i]
            metric = comparison.metric
            row = [ours.label] if several else []
            row += [metric.label, statistic_words(theirs, metric), statistic_words(ours, metric)]
            row.append("-" if comparison.difference is None else difference_words(comparison))
            rows.append([*row, verdict_words(comparison)])
    header = [*(["variant"] if several else []), "metric", "A", "B", "B - A", "verdict on B"]
    return Table(header, rows, text_columns=len(header))


def _configuration_lines(compared: Compared) -> list[str]:
    """Return one line where all pairs differ in the same way, else one line per pair."""
    found = {ours.label: _differences(theirs, ours) for ours, theirs in compared.pairs[:_MOST_PAIRS]}
    texts = {label: _list(lines) for label, lines in found.items()}
    if len(set(texts.values())) == 1:
        return [f"configuration: {next(iter(texts.values()))}"]
    return [f"configuration of {label}: {text}" for label, text in texts.items()]


def _list(lines: Sequence[str]) -> str:
    if not lines:
        return "the same"
    more = len(lines) - _MOST_DIFFERENCES
    return ", ".join([*lines[:_MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])])


def _differences(a: Variant, b: Variant) -> Sequence[str]:
    """`LEARNING_RATE 0.05 -> 0.003`, from what the first run of each that began was started with."""
    first, second = _started_with(a), _started_with(b)
    if not first or not second:
        return _other_words(_command(a), _command(b))
    words = _other_words(
        *(words_besides(_command(of), fields_in(start, "config")) for of, start in ((a, first), (b, second)))
    )
    affects = affects_of([a, b])
    given = _flat(first, affects), _flat(second, affects)
    ours, theirs = ({name.lower(): value for name, value in of.items()} for of in given)
    spelled = spellings(name for of in given for name in of)
    options = [
        f"{spelled[name]} {_text(ours.get(name))} -> {_text(theirs.get(name))}"
        for name in [*ours, *(name for name in theirs if name not in ours)]
        if ours.get(name) != theirs.get(name)
    ]
    return [*words, *options]


def _started_with(variant: Variant) -> Mapping[str, object]:
    """Return the start record; of runs without one, for a program need not write it, run.json has it."""
    if variant.start:
        return variant.start
    for cell in variant.cells:
        with suppress(RunDirectoryError):
            run = read_run_json(cell.run.directory)
            newest = run["attempts"][-1]
            return {"config": run["config"], "git": newest.get("git"), "versions": newest.get("versions")}
    return {}


def _command(variant: Variant) -> Sequence[str]:
    """Return the words that a program was run with, placeholders for its axes; of a training of ours none."""
    run = variant.cells[0].run.directory
    command = read_command(run)
    if command is None:
        return ()
    template = read_matrix_json(run.parent)["template"] if has_plan(run.parent) else None
    template = template or command.template
    return [*(f"{name}={value}" for name, value in template["environment"].items()), *template["words"]]


def _other_words(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """`command: --lr 0.1 -> --lr 0.2`, without the words that both begin and end with."""
    if a == b or not (a and b):
        return []
    begin = _num_shared(a, b)
    end = _num_shared(a[begin:][::-1], b[begin:][::-1])
    if begin and a[begin - 1].startswith("-"):
        begin -= 1  # the option whose value differs
    ours, theirs = (shlex.join(words[begin : len(words) - end]) or "nothing" for words in (a, b))
    return [f"command: {ours} -> {theirs}"]


def _num_shared(a: Sequence[str], b: Sequence[str]) -> int:
    """The number of words that both begin with."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _flat(start: Mapping[str, object], affects: Affects) -> Mapping[str, object]:
    """The options of the training, then data, device and code."""
    options = fields_in(start, "config")
    names = affects.names(options, "results", "speed", "reporting", "machine")
    found = {
        name: options[name]
        for name in names
        if name != REPLICATE_AXIS and not affects.touches(name, "matrix")  # of the matrix around the runs
    }
    for name in ("data_sha256", "device", "cpu_threads"):
        found[name] = start.get(name)
    for group in ("git", "versions"):
        values = fields_in(start, group)
        found |= {f"{group}.{name}": value for name, value in values.items() if name != "dirty"}
    return found


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return text[:12] if _HASH.fullmatch(text) else text
