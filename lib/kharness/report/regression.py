"""Whether something got worse, as an exit code: 3 if it did, 0 if that is not shown, 2 if undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kharness.report.errors import ReportError
from kharness.report.judging.judgment import Comparison, Verdict
from kharness.report.judging.sentences import difference_words

_YES, _NO = ("y", "yes", "1", "true"), ("n", "no", "0", "false", "")


def fails_on_regression(variables: Mapping[str, str]) -> bool:
    """FAIL_ON_REGRESSION=y."""
    text = variables.get("FAIL_ON_REGRESSION", "").lower()
    if text not in (*_YES, *_NO):
        raise ReportError(f"FAIL_ON_REGRESSION={text} is neither y nor n", hint="write FAIL_ON_REGRESSION=y")
    return text in _YES


def tolerance_of(variables: Mapping[str, str]) -> float | None:
    """TOLERANCE=0.005, in the metric's own unit (half a point of accuracy); None if it is not given."""
    text = variables.get("TOLERANCE", "")
    if not text:
        return None
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise ReportError(
            f"TOLERANCE={text} is not a difference that one could allow",
            hint="0.005 allows half a point less",
        )
    return tolerance


def regressions(comparisons: Sequence[Comparison], tolerance: float | None = None) -> Sequence[str]:
    """Return one line per regression; raise ReportError if that cannot be decided.

    Worse is what is shown to be worse in the decisive metric, and what has runs that ended badly where its
    baseline has none. Where there is no verdict for lack of seeds, as with one or two runs on each side, the
    difference is compared with `tolerance` (in the metric's unit); without one there is no answer.

    Main effects count where they are shown to be worse; what they lack, the comparisons that they are the
    mean of say.
    """
    worse, unknown = [], []
    for comparison in comparisons:
        if comparison.over and comparison.verdict is not Verdict.WORSE:
            continue
        failed, failed_of_baseline = (0, 0) if comparison.over else comparison.failed
        if failed and not failed_of_baseline:
            worse.append(f"{comparison.variant}: {failed} failed, none of {comparison.baseline}")
        if comparison.verdict is Verdict.WORSE:
            worse.append(f"{comparison.variant}: {comparison.metric.title} {difference_words(comparison)}")
        elif comparison.verdict not in (Verdict.BETTER, Verdict.SAME, Verdict.EQUAL, Verdict.NOT_SHOWN):
            few = comparison.verdict in (Verdict.UNDECIDED, Verdict.TOO_FEW)
            if comparison.metric.unjudged:
                unknown.append(f"{comparison.variant}: {comparison.metric.unjudged}")
            elif few and None not in (tolerance, comparison.difference):
                worse += _beyond(comparison, tolerance or 0.0)
            else:
                unknown.append(f"{comparison.variant}: {comparison.verdict}: {comparison.reason}")
    if unknown and not worse:
        raise ReportError(
            f"cannot decide whether this is a regression: {'; '.join(unknown)}",
            hint="train more seeds with the same budget, or give TOLERANCE= for a single run of each",
        )
    return worse


def _beyond(comparison: Comparison, tolerance: float) -> list[str]:
    sign = 1 if comparison.metric.higher_is_better else -1
    # In binary 0.746 - 0.75 is a little under -0.004.
    if sign * (comparison.difference or 0.0) >= -tolerance * (1 + 1e-9):
        return []
    metric, found = comparison.metric, difference_words(comparison)
    return [f"{comparison.variant}: {metric.title} {found}, tolerance {tolerance * metric.scale:g}"]
