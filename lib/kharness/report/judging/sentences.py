"""Word the conclusions: a sentence or two per comparison for a page, one line for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kharness.report.judging.budgets import budget_words, equal_words, mismatch, same_work
from kharness.report.judging.conclusions import Conclusions
from kharness.report.judging.interim_looks import FEWEST, FIRST_SHARE, PILOT
from kharness.report.judging.judgment import OPEN, SHOWN, Comparison, Verdict
from kharness.report.judging.statistics import POWER, Interval
from kharness.report.metrics import Metric
from kharness.runs.files import SUMMARY_MD
from monitoring.counts import counted

# Comparisons shown in a terminal; the files hold all.
MOST_LINES = 20
# Of more verdicts with one reason it is told below them.
MOST_ALIKE = 2
# Most digits of a number that would be shown as zero but is not.
_MOST_DIGITS = 12
# Usual significance levels.
_LEVELS = (0.2, 0.1, 0.05, 0.01, 0.001)

LIMIT_SHARE = 0.5
"""Share of the detectable difference from which the limit due to the test set is mentioned."""


def comparison_lines(conclusions: Conclusions) -> list[str]:
    """Return lines for a terminal: the baseline, then one line per comparison; metric by metric."""
    return [line for part in conclusions.by_metric for line in _lines_of_metric(part)]


def _lines_of_metric(conclusions: Conclusions) -> list[str]:
    comparisons = conclusions.comparisons
    if not comparisons and not conclusions.notes:
        return []
    metric = conclusions.metric
    pairs = [(*one.budgets, one.budget_unit) for one in comparisons]
    budgets = [equal_words(*pair) for pair in pairs if not mismatch(*pair)]
    lines = [f"budget: {' | '.join(dict.fromkeys(budgets))}"] if budgets else []
    if comparisons:
        levels = levels_words(comparisons, conclusions.settings.confidence)
        lines.append(
            f"{metric.title} compared with {conclusions.baseline} ({levels}){chosen_words(comparisons)}:"
        )
    listed, together = _with_reasons_once(comparisons)
    width = max((len(comparison.variant) for comparison in listed), default=0)
    lines += [f"  {comparison_line(comparison, width)}" for comparison in listed]
    if len(comparisons) > MOST_LINES:
        lines.append(f"  … and {len(comparisons) - MOST_LINES} more in {SUMMARY_MD}")
    below = [*together, *_smallest_lines(comparisons), *_held_back_lines(comparisons)]
    lines += [f"  {line}" for line in below]
    lines += _effect_lines(conclusions)
    lines += [f"  {note}" for note in conclusions.notes[:MOST_LINES]]
    return [*lines, conclusions.metric_note] if conclusions.metric_note else lines


def _with_reasons_once(comparisons: Sequence[Comparison]) -> tuple[list[Comparison], list[str]]:
    """Return those of a terminal without the reasons that many share, and a line for each such reason."""
    reasons = Counter((one.verdict, one.reason) for one in comparisons if one.verdict in OPEN and one.reason)
    shared = {of: count for of, count in reasons.items() if count > MOST_ALIKE}
    listed = [
        replace(one, reason="") if (one.verdict, one.reason) in shared else one
        for one in comparisons[:MOST_LINES]
    ]
    lines = []
    for (verdict, reason), count in shared.items():
        which = f"all {count}" if count == len(comparisons) else f"{count} of {len(comparisons)}"
        alone = [
            one for one in comparisons if (one.verdict, one.reason, min(one.counts)) == (verdict, reason, 1)
        ]
        takes = min((one.next_look for one in alone if one.next_look), default=0)
        enough = f"; a verdict takes {takes} seeds of each" if verdict is Verdict.UNDECIDED and takes else ""
        lines.append(f"{verdict}, {which}: {reason}{enough}")
    return listed, lines


def _effect_lines(conclusions: Conclusions) -> list[str]:
    if not conclusions.effects:
        return []
    names = [f"{one.variant} vs {one.baseline}" for one in conclusions.effects]
    width = max(map(len, names))
    return [
        "main effects, each the mean over the levels of the other axes:",
        *(
            f"  {comparison_line(replace(one, variant=name), width)}"
            for name, one in zip(names, conclusions.effects, strict=True)
        ),
    ]


def comparison_line(comparison: Comparison, width: int = 0) -> str:
    """Return `adam   +0.31 (+0.05 to +0.57) points  better, p 0.008`."""
    parts = [comparison.variant.ljust(width)]
    if comparison.difference is not None:
        parts.append(difference_words(comparison))
    parts.append(verdict_words(comparison))
    missing = len(comparison.failures)
    if missing:
        parts.append(f"[{counted(missing, 'run')} not counted]")
    return "  ".join(parts)


def comparison_sentence(comparison: Comparison) -> str:
    """Return all that a reader needs to judge the verdict, most important first."""
    ours, theirs, metric = comparison.variant, comparison.baseline, comparison.metric
    if comparison.verdict in (Verdict.BETTER, Verdict.WORSE):
        text = f"**{ours}** is {comparison.verdict} than {theirs} in {metric.title}"
    elif comparison.verdict is Verdict.SAME:
        text = f"**{ours}** is the same as {theirs} in {metric.title}, within the margin"
    else:
        text = f"**{ours}** and {theirs}: {comparison.verdict} in {metric.title}"
    if comparison.over:
        text += f", over the levels of {' and '.join(axis.lower() for axis in comparison.over)}"
    if comparison.verdict not in SHOWN and comparison.reason:
        text += f"; {comparison.reason}"
    sentences = [text, *_evidence(comparison), _budget_sentence(comparison)]
    if ties_words(comparison):
        sentences.append(f"It rests on {ties_words(comparison).removeprefix('by ')}")
    if comparison.left_out:
        sentences.append(f"Without a partner of the same seed, left out: {', '.join(comparison.left_out)}")
    if comparison.failures:
        sentences.append(f"Not counted: {'; '.join(comparison.failures)}")
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def difference_words(comparison: Comparison, *, unit: bool = True) -> str:
    """Return `+0.31 (+0.05 to +0.57) points`; the interval only where there is one."""
    of = unit_words(comparison.metric) if unit else ""
    text = signed(comparison.difference or 0.0, comparison.metric, _digits(comparison))
    if comparison.interval is not None:
        text += f" ({interval_words(comparison.interval, comparison.metric)})"
    return f"{text} {of}" if of else text


def interval_words(interval: Interval, metric: Metric) -> str:
    """Return both bounds, with extra digits where the interval excludes zero but a bound would be rounded to
    it.
    """
    bounds = (interval.low, interval.high)
    digits = _digits_of(metric, *bounds) if interval.excludes_zero else metric.digits
    return f"{signed(interval.low, metric, digits)} to {signed(interval.high, metric, digits)}"


def signed(number: float, metric: Metric, digits: int | None = None) -> str:
    """Return a difference in the unit shown; one that rounds to zero has no sign."""
    text = f"{number * metric.scale:+.{metric.digits if digits is None else digits}f}"
    return text if float(text) else text[1:]


def _digits(comparison: Comparison) -> int:
    """Return the digits of a difference: none is printed as zero next to "worse"."""
    metric = comparison.metric
    if comparison.verdict not in (Verdict.BETTER, Verdict.WORSE):
        return metric.digits
    return _digits_of(metric, comparison.difference or 0.0)


def _digits_of(metric: Metric, *numbers: float) -> int:
    """Return the metric's digits, or as many as it takes to show that no number is zero."""
    digits = metric.digits
    while digits < _MOST_DIGITS and any(
        number and not round(number * metric.scale, digits) for number in numbers
    ):
        digits += 1
    return digits


def smallest_words(number: float, metric: Metric) -> str:
    """Return `1.20 points`."""
    return f"{number * metric.scale:.{metric.digits}f} {unit_words(metric)}".rstrip()


def images_words(number: int, metric: Metric) -> str:
    """Return `1,000 test images`."""
    split = metric.name.removeprefix("best_").partition("_")[0]
    return f"{number:,} {'validation' if split == 'val' else split} images"


def limit_words(size: float, limit: float | None, images: int | None, metric: Metric) -> str:
    """Return the limit that more seeds cannot pass, if it is near what these seeds show; else empty."""
    if limit is None or images is None or limit < LIMIT_SHARE * size:
        return ""
    least = smallest_words(limit, metric)
    return f"on {images_words(images, metric)} no number of seeds shows less than {least}"


def method_words(comparison: Comparison) -> str:
    """Return the error the difference is judged by, and why that one."""
    seeds = f"over {comparison.counts[0]} seeds"
    freedom = f"{comparison.degrees:.3g} degrees of freedom" if comparison.degrees else ""
    ours, theirs = comparison.counts
    variants = (
        f"all variants but {' and '.join(comparison.set_aside)}" if comparison.set_aside else "all variants"
    )
    words = {
        "blocked": f"error pooled over {variants}, which vary alike, {seeds} as blocks ({freedom})",
        "baseline_apart": f"{comparison.baseline} varies more than the others, so that its error is taken "
        f"apart, {seeds} as blocks ({freedom})",
        "variant_apart": f"{comparison.variant} varies more than the others, so that it is judged by its own "
        f"pairs: paired t test {seeds}",
        "split_plot": "runs of a seed move together where they share the level of an axis, so each axis has "
        f"an error of its own (split plot), {seeds} as blocks ({freedom})",
        "each_apart": "the variants do not vary alike, so that each has an error of its own, "
        f"{seeds} as blocks ({freedom})",
        "paired": f"paired t test {seeds}",
        "welch": f"no seed is common to both: Welch's t test of {ours} against {theirs} runs",
        "test_set": f"equal {seeds}: judged by the error of the test set alone",
    }.get(comparison.method, "")
    among = (
        f", judged among all {comparison.chosen_of} pairs of the matrix" if comparison.chosen_of > 1 else ""
    )
    return words + among


def explanation(conclusions: Conclusions) -> str:
    """Return the meaning of the verdicts, which a report prints once above them."""
    percent = f"{conclusions.settings.confidence * 100:g} %"
    margin = conclusions.settings.margin
    same = (
        f"*The same* means that the interval lies within {smallest_words(margin, conclusions.metric)}. "
        if margin
        else ""
    )
    titles = " or ".join(part.metric.title for part in conclusions.by_metric)
    return (
        f"Compared with {conclusions.baseline} in {titles}, run by run of the same seed"
        f"{chosen_words(conclusions.comparisons)}. "
        f"With {percent} none of the verdicts *better*, *worse* and *the same* is wrong, however often "
        f"seeds are added and looked at: {_looks_words(conclusions)}. *Better* and *worse* are written only "
        f"where the interval leaves out zero, no planned run collapsed, {_budget_rule(conclusions)}. {same}"
        "*No difference shown* does not mean equal: it says what these seeds would have shown in "
        f"{POWER * 100:g} % of all cases, and how many more would show a difference of the size found."
    )


def _budget_rule(conclusions: Conclusions) -> str:
    units = " or ".join(dict.fromkeys(one.budget_unit for one in conclusions.comparisons))
    rule = f"both sides had the same budget{f' of {units}' if units else ''}"
    if conclusions.metric.is_cost:
        return rule
    tolerance = conclusions.settings.time_tolerance
    share = f"more than {tolerance * 100:g} %" if tolerance else "any"
    longer = f"the better one did not train {share} longer"
    if any(one.budget_unit != "time" for one in conclusions.comparisons):
        longer += (
            ", where both did the same steps on as much data (batches of another size take another time)"
        )
    return f"{rule}, and {longer}"


def _looks_words(conclusions: Conclusions) -> str:
    planned = conclusions.settings.seeds_planned
    if planned:
        return f"they are given at {planned} seeds, as MATRIX_SEEDS_PLANNED has it, and at no other number"
    return (
        f"they are given at the planned number of seeds ({PILOT} where fewer than {FEWEST} were), which "
        f"spends {FIRST_SHARE * 100:g} % of the error, and at its doublings, which share the rest; intervals "
        "are what those of all looks so far have in common, so that what is shown stays shown"
    )


def levels_words(comparisons: Sequence[Comparison], confidence: float) -> str:
    """Return `95.5 % intervals, 95 % over all looks`: the simultaneous level of this look, and the total."""
    percent = f"{confidence * 100:g} %"
    judged = (one.interval for one in comparisons if one.p_adjusted is not None)
    levels = sorted({round(interval.level, 12) for interval in judged if interval})
    if not levels:
        return f"{percent} intervals"
    shown = " and ".join(f"{level * 100:.5g} %" for level in levels)
    rest = "" if levels == [round(confidence, 12)] else f", {percent} over all looks"
    return f"{shown} intervals{rest}"


def chosen_words(comparisons: Sequence[Comparison]) -> str:
    """Return `, chosen after looking: judged among all 45 pairs of the matrix`; empty for planned
    comparisons.
    """
    pairs = max((one.chosen_of for one in comparisons), default=0)
    return f", chosen after looking: judged among all {pairs} pairs of the matrix" if pairs > 1 else ""


def _smallest_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the difference the matrix could have shown, for verdicts of no difference shown."""
    unshown = [one for one in comparisons if one.verdict is Verdict.NOT_SHOWN]
    smallest = [one.smallest for one in unshown if one.smallest]
    if not smallest:
        return []
    metric = comparisons[0].metric
    low, high = (smallest_words(found, metric) for found in (min(smallest), max(smallest)))
    size = high if low == high else f"{low.partition(' ')[0]} to {high}"
    lines = [f"these seeds show {size} or more ({POWER * 100:g} % power)"]
    limits = [limit_words(min(smallest), one.limit, one.images, metric) for one in unshown]
    return [*lines, *dict.fromkeys(filter(None, limits))]


def _held_back_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Return why the verdicts are not of all seeds that the table has."""
    found = {
        f"verdicts are of {len(one.seeds)} seeds, not of {len(one.seeds) + one.held_back}: "
        + (f"the next look is at {one.next_look}" if one.next_look else "MATRIX_SEEDS_PLANNED has one look")
        for one in comparisons
        if one.held_back
    }
    return sorted(found)


def _evidence(comparison: Comparison) -> list[str]:
    if comparison.difference is None:
        return []
    sentences = [f"Difference {difference_words(comparison)}"]
    if comparison.p is None:
        return sentences
    sentences[0] += f", {method_words(comparison)}, p {p_words(comparison.p)}"
    if comparison.p_adjusted is None:
        sentences[0] += ", not corrected for several looks"
    else:
        sentences[0] += f", with all comparisons and looks {p_words(comparison.p_adjusted)}"
    if comparison.effect is not None:
        sentences[0] += f", effect size {comparison.effect:.2f}"
    if len(comparison.looks) > 1:
        sentences.append(_looks_of(comparison))
    if comparison.smallest is not None:
        sentences.append(
            f"In {POWER * 100:g} % of all cases these seeds show a difference of "
            f"{smallest_words(comparison.smallest, comparison.metric)} or more"
        )
        limit = limit_words(comparison.smallest, comparison.limit, comparison.images, comparison.metric)
        sentences += [limit.capitalize()] if limit else []
    if comparison.next_look is not None and comparison.p_adjusted is not None:
        sentences.append(f"The next look is at {comparison.next_look} seeds")
    return sentences


def _looks_of(comparison: Comparison) -> str:
    """Return the interval of each look, and what follows from them together."""
    each = [
        f"{interval_words(one.interval, comparison.metric)} at {one.seeds} seeds" for one in comparison.looks
    ]
    interval, difference = comparison.interval, comparison.difference or 0.0
    if interval is None:
        return f"The looks have no difference in common ({', '.join(each)}), so one of them is wrong"
    text = f"The interval is what all looks have in common: {', '.join(each)}"
    if interval.low <= difference <= interval.high:
        return text
    return f"{text}; the difference over all seeds is not in it"


def _budget_sentence(comparison: Comparison) -> str:
    ours, theirs = comparison.budgets
    if not ours.steps or not theirs.steps:
        return ""
    times = [f"{b.seconds:.1f} s" for b in comparison.budgets if b.seconds is not None]
    took = f"; training took {' against '.join(times)}" if len(times) == 2 else ""
    if same_work(ours, theirs):
        return f"Both had {budget_words(ours, with_time=False)}{took}"
    if not mismatch(ours, theirs, comparison.budget_unit):
        return f"{equal_words(ours, theirs, comparison.budget_unit).capitalize()}{took}"
    return f"Budgets: {budget_words(ours)} against {budget_words(theirs)}"


def verdict_words(comparison: Comparison) -> str:
    """Return the verdict with its reason, or with the p value it rests on."""
    if comparison.verdict is Verdict.SAME and comparison.interval is not None:
        words = f"{comparison.verdict}, {comparison.interval.level * 100:.4g} %"
    elif comparison.verdict in SHOWN and comparison.p_adjusted is not None:
        words = f"{comparison.verdict}, p {p_words(comparison.p_adjusted)}"
    else:
        words = f"{comparison.verdict}: {comparison.reason}" if comparison.reason else str(comparison.verdict)
    if comparison.shown_at is not None and comparison.shown_at < comparison.looks[-1].seeds:
        words += f", shown at {comparison.shown_at} seeds"
    ties = ties_words(comparison)
    return f"{words} ({ties})" if ties else words


def ties_words(comparison: Comparison) -> str:
    """Return `by 3 of 5 seeds: neither side has a result on 2`; empty where every planned seed counts."""
    if not comparison.ties or not comparison.seeds:
        return ""
    used, ties = len(comparison.seeds), len(comparison.ties)
    return f"by {used} of {used + ties} seeds: neither side has a result on {ties}"


def unit_words(metric: Metric) -> str:
    """Return the unit of a difference."""
    return "points" if metric.shown_unit == "%" else metric.shown_unit


def p_words(p: float) -> str:
    """Return two digits, more where rounding would move p across a usual level."""
    if p < 0.0001:
        return "< 0.0001"
    digits = next(
        (d for d in range(2, 6) if all((float(f"{p:.{d}g}") < at) == (p < at) for at in _LEVELS)), 6
    )
    return f"{p:.{digits}g}"
