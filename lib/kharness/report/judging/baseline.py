"""Choose the baseline of each variant: another variant of the matrix, or a run or matrix in another
directory.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.config.make.typed import typed_setting
from kharness.report.collection import Collection, Variant, read_collection
from kharness.report.errors import ReportError
from kharness.report.runs import fields_in
from kharness.runs.bundle import opened
from kharness.runs.latest import compared_place, split_place

# These make a workload; results of different workloads are never compared.
WORKLOAD_AXES = ("MODEL", "DATASET")


@dataclass(frozen=True)
class Baseline:
    """The pairs (variant, baseline) of a report."""

    words: str
    """Description of the baseline for the head of a table; empty if nothing is compared."""
    pairs: Sequence[tuple[Variant, Variant]]
    """Variants with their baselines, in the order of the plan."""
    notes: Sequence[str]
    """One note per variant without a baseline."""


def baseline_of(summary: Collection) -> Baseline:
    """Resolve REPORT_BASELINE: `SYMBOL=value …`, a variant's label, a directory, or empty for the first
    variant.

    Values that are given replace those of each variant, so `OPTIMIZER=sgd` compares every variant with sgd at
    the same batch size. ReportError for what is none of these.
    """
    asked = summary.settings.baseline
    if not asked:
        first = summary.variants[0] if summary.variants else Variant({}, "", [])
        return _within(summary, without_workload(first), first.label)
    labeled = [variant for variant in summary.variants if variant.label == asked]
    if labeled:
        return _within(summary, labeled[0].values, asked)
    directory, given = split_place(asked)
    if directory is None:
        return _within(summary, _values(summary, given, f"BASELINE={asked}"), asked)
    return _elsewhere(summary, select(read_collection(directory), given, f"BASELINE={asked}"), asked)


def without_workload(variant: Variant) -> Mapping[str, str]:
    """Return the values of a variant on the other axes."""
    return {symbol: value for symbol, value in variant.values.items() if symbol not in WORKLOAD_AXES}


def planned_baseline(summary: Collection) -> Baseline:
    """Return the baseline that the matrix was planned with, whatever is asked for now: pairs not selected by
    their results.
    """
    planned = fields_in(summary.plan, "settings").get("REPORT_BASELINE")
    planned = planned if isinstance(planned, str) else ""
    if planned == summary.settings.baseline:
        return baseline_of(summary)
    try:
        return baseline_of(replace(summary, settings=replace(summary.settings, baseline=planned)))
    except ReportError:  # another directory, since removed
        return Baseline("", [], [])


def baseline_line(summary: Collection) -> str:
    """Return which variant the others are compared with, and how to choose another; empty without any."""
    found = baseline_of(summary)
    if not found.pairs:
        return ""
    if summary.settings.baseline:
        return f"baseline: {found.words}"
    other = shlex.quote(next(variant.label for variant, _ in found.pairs))
    choose = typed_setting(f"BASELINE={other}", f"--baseline {other}")
    return f"baseline: {found.words}, the first; {choose} compares with another"


def is_within(pairs: Sequence[tuple[Variant, Variant]], whole: Baseline | Collection) -> bool:
    """Return whether all pairs are among those of a baseline, or of two variants of a collection."""
    if isinstance(whole, Baseline):
        known = {(one.label, baseline.label) for one, baseline in whole.pairs}
        return all((one.label, baseline.label) in known for one, baseline in pairs)
    labels = {variant.label for variant in whole.variants}
    return all(one.label != other.label and {one.label, other.label} <= labels for one, other in pairs)


def open_place(text: str, given: Mapping[str, str] | None = None) -> Collection:
    """Open a run, a matrix, or `dir:SYMBOL=value …` for some variants of it; raise ReportError if it is
    neither.
    """
    place, assignments = compared_place(text)
    return select(read_collection(opened(place), given), assignments, text)


def select(summary: Collection, given: str, asked: str) -> Collection:
    """Keep only the variants with the given axis values, as if there were no such axes.

    ReportError without any.
    """
    values = _values(summary, given, asked) if given else {}
    chosen = [variant for variant in summary.variants if _has(variant, values)]
    if not chosen:
        raise ReportError(f"{asked}: no variant has these values", hint=_variants_hint(summary))
    cells = [cell for variant in chosen for cell in variant.cells]
    rest = [
        replace(variant, values={s: value for s, value in variant.values.items() if s not in values})
        for variant in chosen
    ]
    return replace(summary, variants=rest, cells=cells)


def matching(variant: Variant, candidates: Sequence[Variant]) -> Variant | None:
    """Return the only candidate, else the one with the same value on every axis that both have."""
    if len(candidates) == 1:
        return candidates[0]
    found = [
        candidate
        for candidate in candidates
        if all(candidate.values.get(symbol, value) == value for symbol, value in variant.values.items())
    ]
    return found[0] if len(found) == 1 else None


def _within(summary: Collection, values: Mapping[str, str], words: str) -> Baseline:
    pairs, notes = [], []
    candidates = [v for v in summary.variants if _has(v, values)]
    for variant in summary.variants:
        if variant in candidates:
            continue
        # an axis that a candidate lacks (the sparsity of no pruning) cannot distinguish it from the variant
        rest = {symbol: value for symbol, value in variant.values.items() if symbol not in values}
        found = [c for c in candidates if all(c.values.get(s, value) == value for s, value in rest.items())]
        if len(found) == 1:
            pairs.append((variant, found[0]))
        else:
            count = "several baselines" if found else "no baseline"
            notes.append(f"{variant.label} has {count} with {_words(values)}")
    several = len({baseline.label for _, baseline in pairs}) > 1  # one on every workload
    words = _words(values) if several else words
    return Baseline(words if pairs else "", pairs, notes)


def _elsewhere(summary: Collection, other: Collection, asked: str) -> Baseline:
    """Compare every variant with the one in another directory that has the same axis values."""
    pairs, notes = [], []
    for variant in summary.variants:
        baseline = matching(variant, other.variants)
        if baseline is None:
            notes.append(f"{variant.label} has no baseline: {other.title} lacks its values")
        else:
            label = baseline.label if baseline.label == other.title else f"{baseline.label} of {other.title}"
            pairs.append((variant, replace(baseline, label=label)))
    return Baseline(asked, pairs, notes)


def _values(summary: Collection, given: str, asked: str) -> Mapping[str, str]:
    """Parse the assignments of a baseline, each an axis of the matrix with one of its values."""
    found = {}
    try:
        words = shlex.split(given)
    except ValueError:
        words = [given]
    for word in words:
        name, equals, value = word.partition("=")
        symbol = name.upper().removeprefix("CONFIG_")
        if not equals or symbol not in summary.variant_axes or value not in summary.axes[symbol]:
            raise ReportError(f"{asked} is not a variant, run or matrix", hint=_variants_hint(summary))
        found[symbol] = value
    return found


def _variants_hint(summary: Collection) -> str:
    axes = [f"{symbol}={'|'.join(summary.axes[symbol])}" for symbol in summary.variant_axes]
    return f"choose one of {' '.join(axes)}" if axes else "name the directory of a run or a matrix"


def _has(variant: Variant, values: Mapping[str, str]) -> bool:
    return all(variant.values.get(symbol) == value for symbol, value in values.items())


def _words(values: Mapping[str, str]) -> str:
    return " ".join(f"{symbol}={value}" for symbol, value in values.items())
