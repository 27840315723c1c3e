"""The first screen of a report in words: title, verdict, what these seeds could show, what to run next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kharness.report.collection import REPLICATE_AXIS, CellResult, why_incomplete
from kharness.report.comparison_table import statistic_words
from kharness.report.judging.conclusions import Conclusions, workloads_of
from kharness.report.judging.judgment import OF_THIS_SIZE, OPEN, Comparison, Verdict
from kharness.report.judging.sentences import comparison_line, difference_words, limit_words, smallest_words
from kharness.report.judging.statistics import POWER
from kharness.report.overview.next_runs import Suggestion, suggestions
from kharness.report.overview.sweep_facts import SweepFacts, spoken, symbol_words
from kharness.report.runs import fields_in
from kharness.report.summary import Summary
from monitoring.counts import counted, listed

# Variants that a sentence names; more are a number.
_MOST_NAMED = 3
# Labels that a title names, and their characters.
_MOST_IN_TITLE, _LONGEST_IN_TITLE = 6, 72


@dataclass(frozen=True)
class Headline:
    """The words that a reader sees without scrolling."""

    title: str
    verdict: str
    """One sentence, or one for each deciding metric."""
    shown: Sequence[str]
    """Sentences on what these seeds could and could not show, and which runs are in no mean."""
    next_runs: Sequence[Suggestion]


def headline(summary: Summary, sweep: SweepFacts | None = None) -> Headline:
    """Everything in words; nothing of it is computed here."""
    if sweep is not None:
        shown = [*sweep.shown, *_not_counted(summary)]
        return Headline(human_title(summary), sweep.lead, shown, sweep.next_runs)
    return Headline(
        title=human_title(summary),
        verdict=verdict_sentence(summary),
        shown=[*_shown(summary), *_not_counted(summary)],
        next_runs=suggestions(summary),
    )


def human_title(summary: Summary) -> str:
    """Return `LeNet-5 on MNIST (subset): sgd, adam, adamw; 2 seeds each`."""
    workloads = [" on ".join(map(spoken, name.split(", "))) for name in workloads_of(summary)]
    # A variant that has not begun is on a dataset that is not recorded yet.
    begun = [name for name in workloads if not any(one.startswith(f"{name} on ") for one in workloads)]
    known = [name for name in begun if name != "runs"]
    if not summary.plan:
        return _title_of_run(summary, known)
    about = listed(known) if len(known) <= _MOST_NAMED else counted(len(known), "workload")
    seeds = {len(variant.cells) for variant in summary.variants}
    parts = [_variants_words(summary, len(known))]
    if REPLICATE_AXIS in summary.axes and seeds:
        number = str(max(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        each = " each" if len(summary.variants) > 1 else ""
        parts.append(f"{number} {'seed' if seeds == {1} else 'seeds'}{each}")
    rest = "; ".join(filter(None, parts))
    about = about or ("" if summary.is_comparison and rest else summary.title)
    return ": ".join(filter(None, (about, rest)))


def _title_of_run(summary: Summary, known: Sequence[str]) -> str:
    run = summary.cells[0].run
    optimizer, name = fields_in(run.start, "optimizer").get("name"), run.start.get("run_name")
    parts = [str(optimizer)] if optimizer else []
    parts += [f"seed {summary.cells[0].seed}"] if summary.cells[0].seed is not None else []
    about = known[0] if known else str(name or summary.title)
    return f"{about}: {', '.join(parts)}" if parts else about


def _variants_words(summary: Summary, workloads: int) -> str:
    if len(summary.variants) < 2:
        return ""
    labels = [variant.label for variant in summary.variants]
    named = ", ".join(labels)
    if (
        workloads < 2
        and not summary.is_sweep
        and len(labels) <= _MOST_IN_TITLE
        and len(named) <= _LONGEST_IN_TITLE
    ):
        return named
    axes = [symbol_words(axis) for axis in summary.variant_axes if len(summary.axes[axis]) > 1]
    what = f" by {listed(axes)}" if 0 < len(axes) <= _MOST_NAMED else ""
    of_sweep = "sweep of " if summary.is_sweep else ""
    return f"{of_sweep}{counted(len(labels), summary.variant_word)}{what}"


def verdict_sentence(summary: Summary) -> str:
    """Return who is better, or why nobody can say, in a sentence for each deciding metric."""
    conclusions = summary.conclusions
    if conclusions.comparisons:
        parts = [part for part in conclusions.by_metric if part.comparisons]
        return " ".join(_sentence(part) for part in parts)
    complete = [variant for variant in summary.variants if variant.complete]
    if not complete:
        return f"No run is complete yet: {_status_words(summary)}."
    if len(summary.cells) == 1:
        return _sentence_of_run(summary.cells[0], summary)
    values = [f"{one.label} {statistic_words(one, conclusions.metric)}" for one in complete[:_MOST_NAMED]]
    over = f" over {len(complete[0].complete)} seeds" if len(complete) == 1 else ""
    why = "; ".join(conclusions.notes[:1]) or "there is nothing to compare it with"
    return f"{conclusions.metric.label}: {', '.join(values)}{over}; {why}."


def _sentence_of_run(cell: CellResult, summary: Summary) -> str:
    metric, run = summary.conclusions.metric, cell.run
    value = statistic_words(summary.variants[0], metric)
    steps = "" if run.last_step is None else f" after {run.last_step:,} steps"
    return f"{metric.label}: {value}{steps}." if value != "-" else f"Complete{steps}."


def _status_words(summary: Summary) -> str:
    found = Counter(cell.run.shown_status for cell in summary.cells)
    if len(summary.cells) == 1:
        return why_incomplete(summary.cells[0])
    return ", ".join(f"{number} {status}" for status, number in found.items())


def _sentence(part: Conclusions) -> str:
    """Return one sentence on all comparisons of a metric, the decided ones first."""
    metric, baseline = part.metric.title, part.baseline
    of: dict[Verdict, list[Comparison]] = {}
    for one in part.comparisons:
        of.setdefault(one.verdict, []).append(one)
    clauses: list[str] = []
    for verdict in (Verdict.BETTER, Verdict.WORSE):
        if verdict in of:
            than = f"than {baseline} in {metric}" if not clauses else "than it"
            clauses.append(f"{_named(of[verdict])} {verdict} {than}{_differences(of[verdict])}")
    if Verdict.SAME in of:
        clauses.append(f"{_named(of[Verdict.SAME])} the same as {baseline} in {metric} within the margin")
    if Verdict.EQUAL in of:
        clauses.append(f"{_named(of[Verdict.EQUAL])} equal to {baseline}, {of[Verdict.EQUAL][0].reason}")
    if Verdict.NOT_SHOWN in of:
        clauses.append(_not_shown(of[Verdict.NOT_SHOWN], part, alone=not clauses))
    rest = [one for one in part.comparisons if one.verdict in OPEN]
    for some in (of.get(Verdict.TOO_FEW, []), [one for one in rest if one.verdict is not Verdict.TOO_FEW]):
        if some:
            clauses.append(_undecided(some, part, alone=not clauses))
    text = "; ".join(clauses)
    return f"{text[:1].upper() if clauses and _starts_with_word(text) else text[:1]}{text[1:]}."


def _starts_with_word(text: str) -> bool:
    """Whether it begins with a word of ours, and not with a variant's name, which keeps its letters."""
    return text.startswith(("no ", "too ", "for "))


def _named(some: Sequence[Comparison]) -> str:
    """Return `muon is`, `a and b are`, or `7 variants are`."""
    return f"{_short(some, 'and')} {'is' if len(some) == 1 else 'are'}"


def _differences(some: Sequence[Comparison]) -> str:
    """Return `: +0.60 (+0.20 to +1.00) points`, of each; of many the largest alone, with its name."""
    if len(some) > _MOST_NAMED:
        most = max(some, key=lambda one: abs(one.difference or 0.0))
        return f", most of all {most.variant}: {difference_words(most)}"
    return f": {listed([difference_words(one) for one in some])}"


def _short(some: Sequence[Comparison], last: str) -> str:
    if len(some) > _MOST_NAMED:
        return counted(len(some), "variant")
    return listed([one.variant for one in some], last)


def _not_shown(some: Sequence[Comparison], part: Conclusions, *, alone: bool) -> str:
    if alone:
        whom = _short(some, "or")
        return f"no difference in {part.metric.title} is shown between {part.baseline} and {whom}"
    return f"for {_short(some, 'and')} no difference is shown"


def _undecided(some: Sequence[Comparison], part: Conclusions, *, alone: bool) -> str:
    # Of many reasons what all begin with: `budgets differ (samples 500 vs 1,000)`.
    reasons = list(dict.fromkeys(one.reason for one in some))
    reasons = reasons if len(reasons) == 1 else list({one.partition(" (")[0] for one in reasons})
    verdicts = {one.verdict for one in some}
    if verdicts == {Verdict.TOO_FEW}:
        have = {min(one.counts) for one in some}
        number = str(min(have)) if len(have) == 1 else f"{min(have)} to {max(have)}"
        next_look = min((one.next_look for one in some if one.next_look), default=0)
        begin = f": {number} of the {next_look} that a verdict takes" if next_look else f": {number}"
        whom = f"to compare {_short(some, 'and')} with {part.baseline} in {part.metric.title}"
        return f"too few seeds {whom}{begin}" if alone else f"too few seeds for {_short(some, 'and')}{begin}"
    why = f": {reasons[0]}" if len(reasons) == 1 and reasons[0] else ""
    yet = " yet" if verdicts == {Verdict.NOT_YET} else ""
    whom = f"on {_short(some, 'and')}"
    return f"no verdict{yet} {whom}{f' in {part.metric.title}' if alone else ''}{why}"


def _shown(summary: Summary) -> list[str]:
    """Return what these seeds find, and what they leave open."""
    lines = []
    for part in summary.conclusions.by_metric:
        unshown = [one for one in part.comparisons if one.verdict is Verdict.NOT_SHOWN]
        sizes = [one.smallest for one in unshown if one.smallest]
        if not sizes:
            continue
        size = smallest_words(max(sizes), part.metric)
        lines.append(
            f"These seeds find a true difference of {size} or more in {POWER * 100:g} % of all cases. "
            "A smaller one may be there and is not shown."
        )
        reasons = [f"{one.variant}: {_reason(one)}" for one in unshown[:_MOST_NAMED] if one.reason]
        lines += [f"{'; '.join(reasons)}."] if reasons else []
        found = [limit_words(min(sizes), one.limit, one.images, part.metric) for one in unshown]
        lines += [f"{line[:1].upper()}{line[1:]}." for line in dict.fromkeys(filter(None, found))]
    main = [one for one in summary.conclusions.effects if one.verdict in (Verdict.BETTER, Verdict.WORSE)]
    lines += [f"Over the other axes: {comparison_line(one)} (against {one.baseline})." for one in main[:2]]
    return lines


def _reason(one: Comparison) -> str:
    """Return why no difference is shown; nothing on the first screen says which size is meant."""
    size = f"a difference of {smallest_words(abs(one.difference or 0.0), one.metric)}"
    return one.reason.replace(OF_THIS_SIZE, size)


def _not_counted(summary: Summary) -> list[str]:
    missing = summary.incomplete
    if not missing or len(summary.cells) == 1:
        return []
    return [f"{len(missing)} of {len(summary.cells)} runs are not complete and are in no mean."]
