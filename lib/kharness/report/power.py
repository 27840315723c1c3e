"""Power analysis before a matrix runs: the smallest difference that its seeds could show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.report.errors import ReportError
from kharness.report.judging.baseline import baseline_of
from kharness.report.judging.blocks import residual_deviation
from kharness.report.judging.conclusions import decisive_metric
from kharness.report.judging.images import Images, images_behind, least_shown
from kharness.report.judging.interim_looks import FEWEST
from kharness.report.judging.main_effects import main_effects
from kharness.report.judging.pairing import pair_up
from kharness.report.judging.power import Chances, Rule, smallest
from kharness.report.judging.sentences import images_words, limit_words, smallest_words
from kharness.report.judging.statistics import POWER
from kharness.report.metrics import Metric
from kharness.report.summary import Summary, collect
from kharness.runs.files import LATEST
from monitoring.counts import counted


def planned_power_lines(summary: Summary, *, results: Path) -> list[str]:
    """Lines for a matrix that is not written yet; its deviation is judged by the newest one in `results`."""
    metric, _ = decisive_metric(summary.cells, summary.settings)
    compared = baseline_of(summary).pairs
    pairs = [pair_up(*pair, metric, summary.settings) for pair in compared]
    if not pairs:
        return []
    looks, seeds = pairs[0].looks, min(len(one.planned) for one in pairs)
    look = looks.reached(seeds)
    if look is None or look < FEWEST:
        return [f"verdicts: none from {counted(seeds, 'seed')}; they begin at {max(FEWEST, looks.first)}"]
    effects, error = len(main_effects(compared)), 1 - summary.settings.confidence
    alphas = {at: looks.share(at) * error / (len(pairs) + effects) for at in looks.up_to(look)}
    sizes = Counter(one.baseline.label for one in pairs).values()
    tables = [_Table(size, look, alphas, error) for size in sizes]
    number = max(table.smallest(math.sqrt(2), None, Images()) for table in tables)
    also = f" and {counted(effects, 'main effect')}" if effects else ""
    what = f"verdicts: {counted(len(pairs), 'comparison')}{also} at {look} seeds"
    size = f"a difference of {number:.2g} standard deviations or more is found ({POWER * 100:g} % power)"
    return [f"{what}; {size}", *_in_units(tables, metric, results)]


@dataclass(frozen=True)
class _Table:
    """Comparisons with one baseline, all of whose variants vary alike."""

    comparisons: int
    seeds: int
    alphas: Mapping[int, float]
    """Error rate of each comparison by look, the first one first: those up to `seeds`."""
    own_level: float
    """Level of the test by a comparison's own pairs."""

    def smallest(self, deviation: float, degrees: float | None, images: Images) -> float:
        """The difference that is found, by the deviation of a pair's and how well that is known."""
        freedom = self.comparisons * (self.seeds - 1)
        rule = Rule(self.comparisons, 1.0, 0.5, freedom, self.seeds, True, self.own_level)
        *earlier, last = ((at, alpha * self.comparisons) for at, alpha in self.alphas.items())
        return smallest(Chances(rule, *last, deviation, degrees, self.weight(images), tuple(earlier)))

    def weight(self, images: Images) -> float:
        """The same at every look: that of the first one's share."""
        return images.weight(next(iter(self.alphas.values())))


def _in_units(tables: Sequence[_Table], metric: Metric, results: Path) -> list[str]:
    """Lines in units of the metric, where an earlier matrix gives the deviation and the images."""
    try:
        before = collect(results / LATEST)
    except ReportError:
        return []
    found = _deviation(before, metric)
    if found is None:
        return []
    deviation, degrees = found
    images = images_behind(metric, [cell for variant in before.variants for cell in variant.complete])
    size = max(table.smallest(math.sqrt(2) * deviation, degrees, images) for table in tables)
    limit = max(least_shown(table.weight(images)) for table in tables)
    words = limit_words(size, limit, images.number, metric)
    spread = f"the spread in {before.title}"
    if images.number:
        spread += f" and its {images_words(images.number, metric)}"
    shown = f"  by {spread} that is {smallest_words(size, metric)} of {metric.title}"
    return [shown, *([f"  {words}"] if words else [])]


def _deviation(summary: Summary, metric: Metric) -> tuple[float, int] | None:
    """Return the standard deviation that variant and seed leave unexplained, over the seeds that every
    variant completed.

    The second value is its degrees of freedom.
    """
    rows = []
    for variant in summary.variants:
        found = {
            cell.seed: number for cell in variant.complete if (number := cell.number(metric)) is not None
        }
        if found:
            rows.append(found)
    seeds = [seed for seed in rows[0] if all(seed in row for row in rows)] if rows else []
    deviation = residual_deviation([[row[seed] for seed in seeds] for row in rows])
    return None if deviation is None else (deviation, (len(rows) - 1) * (len(seeds) - 1))
