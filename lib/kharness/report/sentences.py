"""Conclusions in words: a sentence or two for a page, one line for a terminal."""

from __future__ import annotations

from kharness.report.budgets import Budget, budget_words
from kharness.report.conclusions import Conclusions
from kharness.report.judgement import Comparison, Verdict
from kharness.report.metrics import Metric
from kharness.report.statistics import POWER, Interval

# A terminal shows this many comparisons; files hold all.
MOST_LINES = 20


def comparison_lines(conclusions: Conclusions) -> list[str]:
    """For a terminal: what is compared with what, then a line a comparison."""
    comparisons = conclusions.comparisons
    if not comparisons and not conclusions.notes:
        return []
    metric, percent = conclusions.metric, f"{conclusions.settings.confidence * 100:g} %"
    lines = []
    if comparisons:
        lines.append(f"{metric.title} compared with {conclusions.baseline} ({percent} intervals):")
    width = max((len(comparison.variant) for comparison in comparisons[:MOST_LINES]), default=0)
    lines += [f"  {comparison_line(comparison, width)}" for comparison in comparisons[:MOST_LINES]]
    if len(comparisons) > MOST_LINES:
        lines.append(f"  … and {len(comparisons) - MOST_LINES} more in summary.md")
    lines += [f"  {note}" for note in conclusions.notes[:MOST_LINES]]
    return [*lines, conclusions.metric_note] if conclusions.metric_note else lines


def comparison_line(comparison: Comparison, width: int = 0) -> str:
    """`adam   +0.31 (+0.05 to +0.57) points  better, p 0.008`."""
    parts = [comparison.variant.ljust(width)]
    if comparison.difference is not None:
        parts.append(difference_words(comparison))
    parts.append(verdict_words(comparison))
    missing = len(comparison.failures)
    if missing:
        parts.append(f"[{missing} run{'s' * (missing > 1)} not counted]")
    return "  ".join(parts)


def comparison_sentence(comparison: Comparison) -> str:
    """Everything that a reader needs to judge the verdict, in the order of its importance."""
    ours, theirs, metric = comparison.variant, comparison.baseline, comparison.metric
    if comparison.verdict in (Verdict.BETTER, Verdict.WORSE):
        text = f"**{ours}** is {comparison.verdict} than {theirs} in {metric.title}"
    else:
        text = f"**{ours}** and {theirs}: {comparison.verdict} in {metric.title}"
        text += f" ({comparison.reason})" if comparison.reason else ""
    sentences = [text, *_evidence(comparison), _budget_sentence(comparison)]
    if comparison.left_out:
        sentences.append(f"Without a partner of the same seed, left out: {', '.join(comparison.left_out)}")
    if comparison.failures:
        sentences.append(f"Not counted: {'; '.join(comparison.failures)}")
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def difference_words(comparison: Comparison) -> str:
    """`+0.31 (+0.05 to +0.57) points`; the interval only where there is one."""
    unit = unit_words(comparison.metric)
    text = signed(comparison.difference or 0.0, comparison.metric)
    if comparison.interval is not None:
        text += f" ({interval_words(comparison.interval, comparison.metric)})"
    return f"{text} {unit}" if unit else text


def interval_words(interval: Interval, metric: Metric) -> str:
    return f"{signed(interval.low, metric)} to {signed(interval.high, metric)}"


def signed(number: float, metric: Metric) -> str:
    """A difference in the metric's shown unit; one that rounds to nothing has no sign."""
    text = f"{number * metric.scale:+.{metric.digits}f}"
    return text if float(text) else text[1:]


def method_words(comparison: Comparison) -> str:
    """Which test, on what."""
    if comparison.method == "paired":
        return f"paired t test over {comparison.counts[0]} seeds"
    if comparison.method == "welch":
        ours, theirs = comparison.counts
        return f"no seed is common to both: Welch's t test of {ours} against {theirs} runs"
    return ""


def explanation(conclusions: Conclusions) -> str:
    """What the verdicts mean, said once above them."""
    percent = f"{conclusions.settings.confidence * 100:g} %"
    return (
        f"Compared with {conclusions.baseline} in {conclusions.metric.title}, run by run of the same seed. "
        f"All intervals hold at once with {percent} (Bonferroni); *better* and *worse* are written only "
        "where the interval leaves out zero, both sides had the same budget of steps, samples and tokens, "
        f"and the better one did not train {_share(conclusions.settings.time_tolerance)} longer. "
        "*No difference shown* does not mean equal: it says how many more seeds would see a difference of "
        f"the size found in {POWER * 100:g} % of all cases."
    )


def _share(tolerance: float) -> str:
    """`more than 10 %`."""
    return f"more than {tolerance * 100:g} %" if tolerance else "any"


def _evidence(comparison: Comparison) -> list[str]:
    if comparison.difference is None:
        return []
    sentences = [f"Difference {difference_words(comparison)}"]
    if comparison.p is None or comparison.p_holm is None:
        return sentences
    sentences[0] += f", {method_words(comparison)}"
    sentences[0] += f", p {p_words(comparison.p)}, after Holm's correction {p_words(comparison.p_holm)}"
    if comparison.effect is not None:
        sentences[0] += f", effect size {comparison.effect:.2f}"
    if comparison.holm_disagrees:
        sentences.append(
            "Holm's correction alone would call this a difference; the interval, which holds together with "
            "all the others, does not"
        )
    return sentences


def _budget_sentence(comparison: Comparison) -> str:
    ours, theirs = comparison.budgets
    if not ours.steps or not theirs.steps:
        return ""
    if _counts(ours) == _counts(theirs):
        times = [f"{b.seconds:.1f} s" for b in comparison.budgets if b.seconds is not None]
        took = f"; training took {' against '.join(times)}" if len(times) == 2 else ""
        return f"Both had {budget_words(ours, with_time=False)}{took}"
    return f"Budgets: {budget_words(ours)} against {budget_words(theirs)}"


def _counts(budget: Budget) -> tuple[object, ...]:
    return budget.steps, budget.samples, budget.tokens


def verdict_words(comparison: Comparison) -> str:
    """The verdict with its reason, or with the p that it rests on."""
    if comparison.verdict in (Verdict.BETTER, Verdict.WORSE) and comparison.p_holm is not None:
        return f"{comparison.verdict}, p {p_words(comparison.p_holm)}"
    return f"{comparison.verdict}: {comparison.reason}" if comparison.reason else str(comparison.verdict)


def unit_words(metric: Metric) -> str:
    """Of a difference."""
    return "points" if metric.shown_unit == "%" else metric.shown_unit


def p_words(p: float) -> str:
    """Two digits, which is more than few seeds know."""
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"
