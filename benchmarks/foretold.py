"""How often a difference is found that dry run and report say is found in 80 % of all cases.

python benchmarks/foretold.py [MATRICES]

Normal numbers, judged by the report's own code; runs have a deviation of 0.2 points. Three tables, whose
figures are of MATRICES (default 200) simulated ones, with their Monte Carlo error:

- what is told before the runs, and by a report after them, is given to one variant of other matrices. Beside
  it stands what a t test with Dunnett's critical value would find, if that were all (noncentral t)
- 0.6 points are there, 5 seeds planned: how often that is shown at once, how often a number of more seeds is
  told and, once these are there on the same images, found; and how often that no number of seeds would do
- the images are drawn, too: how many of N decide between the two is binomial. How often an interval leaves
  out the truth, beside the wider one of seeds and images, and how often any of three looks does
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import nctdtrinc

from kharness.report.judging.blocks import Contrast, contrasts
from kharness.report.judging.evidence import Evidence, Spending, of_contrast, so_far
from kharness.report.judging.images import Images, widened
from kharness.report.judging.interim_looks import Looks
from kharness.report.judging.power import Chances, Rule, half_width, smallest
from kharness.report.judging.statistics import POWER, largest_t

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SD = 0.2
"""Points."""
TRUE = 0.6
LOOKS = Looks(5)
DEVIATIONS: dict[str, Callable[[int], Numbers]] = {
    "alike": np.ones,
    "one x 4": lambda k: np.append(np.ones(k - 1), 4.0),
    "baseline x 2": lambda k: np.append(2.0, np.ones(k - 1)),
}
SIZES = (
    *((k, n, None, "alike") for k, n in ((2, 3), (2, 5), (3, 5), (6, 3), (6, 5), (6, 10), (14, 5))),
    *((k, 5, images, "alike") for k in (2, 6, 14) for images in (1000, 10_000)),
    *((6, n, None, name) for n in (3, 5) for name in ("one x 4", "baseline x 2")),
)
VARIANTS = (2, 6, 14)
"""Numbers of variants in the second table."""


def main(argv: list[str]) -> int:
    """Print the three tables."""
    count = int(argv[0]) if argv else 200
    print(
        "| variants | seeds | images | deviations | t test alone | found | told before | found "
        "| told after (mean) | found |\n| ---: | ---: | ---: | :--- " + "| ---: " * 6 + "|"
    )
    for k, n, images, name in SIZES:
        print(told_and_found(count, k, n, images, name), flush=True)
    print(
        "\n| variants | images | shown at once | more seeds told | then found | no number told |\n"
        + "| ---: " * 6
        + "|"
    )
    for k, images in itertools.product(VARIANTS, (None, 10_000, 1000)):
        print(more_seeds(count, k, images), flush=True)
    print("\n| images | difference | the wider one | both | any of 3 looks |\n" + "| ---: " * 5 + "|")
    for images in (1000, 10_000):
        for points in (0.0, 0.1, 0.5, 2.0):
            print(images_drawn(10 * count, images, points), flush=True)
    return 0


def told_and_found(count: int, k: int, n: int, images: int | None, name: str) -> str:
    """A row of the first table, in points."""
    rng = np.random.default_rng([k, n, images or 0, *name.encode()])
    spending, m = _spending(n, n), k - 1
    degrees = m * (n - 1)
    weight = Images(images).weight(spending.of_images(spending.alpha, m))
    rule = Rule(m, 1.0, 0.5, degrees, n, pooled=True, own_level=spending.alpha)
    before = smallest(Chances(rule, n, spending.at(n), math.sqrt(2) * SD / 100, None, weight))
    alone = float(nctdtrinc(degrees, 1 - POWER, largest_t(m, degrees, spending.at(n))))
    alone *= math.sqrt(2 / n) * SD / 100
    tables = [_table(rng, k, n, DEVIATIONS[name](k)) for _ in range(count)]
    told, found = [], []
    for table, other in zip(tables, [*tables[1:], tables[0]], strict=True):
        seen = _judged(table, spending, images)
        told.append([one.smallest or 0.0 for one in seen])
        found.append(
            [
                [_finds(one, size, spending, weight) for size in (alone, before, of_report.smallest or 0.0)]
                for one, of_report in zip(contrasts(other.tolist()), seen, strict=True)
            ]
        )
    shares = [_percent(np.asarray(found, dtype=float)[:, :, i].mean(1)) for i in range(3)]
    shown = "-" if images is None else f"{images:,}"
    sizes = f"{100 * alone:.2f} | {shares[0]} | {100 * before:.2f} | {shares[1]}"
    return f"| {k} | {n} | {shown} | {name} | {sizes} | {100 * np.mean(told):.2f} | {shares[2]} |"


def more_seeds(count: int, k: int, images: int | None) -> str:
    """A row of the second table: the last variant is better by TRUE."""
    rng = np.random.default_rng([k, images or 0])
    at_once = none = 0
    then: list[bool] = []
    for _ in range(count):
        table = _table(rng, k, LOOKS.first * 16, np.ones(k))
        table[-1] += TRUE / 100
        seen = _judged(table[:, : LOOKS.first], _spending(LOOKS.first, LOOKS.first), images)[-1]
        at_once += _shows(seen)
        none += not _shows(seen) and seen.limit is not None and abs(_middle(seen)) <= seen.limit
        needed = None if seen.needed is None else seen.needed[0]
        if not _shows(seen) and needed is not None and needed <= table.shape[1]:
            looks = [
                _judged(table[:, :n], _spending(LOOKS.first, n), images)[-1] for n in LOOKS.up_to(needed)
            ]
            then.append(_shows(so_far(looks)))
    shares = f"{100 * at_once / count:.0f} % | {len(then)} of {count} | {sum(then)}"
    return f"| {k} | {'-' if images is None else f'{images:,}'} | {shares} | {none} |"


def images_drawn(count: int, images: int, points: float) -> str:
    """A row of the third table: % of intervals that leave out the truth, of two variants."""
    rng = np.random.default_rng([images, int(1000 * points)])
    wrong = np.zeros((3, count))
    for i in range(count):
        table = _table(rng, 2, LOOKS.first * 4, np.ones(2))
        table[1] += rng.binomial(images, points / 100) / images
        for j, look in enumerate((LOOKS.first, LOOKS.first * 2, LOOKS.first * 4)):
            spending = _spending(LOOKS.first, look)
            both = _outside(_judged(table[:, :look], spending, images)[0], points / 100)
            wrong[2, i] = max(wrong[2, i], both)
            if not j:
                alone = _judged(table[:, :look], spending, None)[0]
                of_images = Images(images).weight(spending.alpha * spending.once)
                mean = _middle(alone)
                half = math.sqrt(of_images * abs(mean) * (1 - abs(mean)))
                wrong[0, i] = _outside(alone, points / 100) and abs(mean - points / 100) > half
                wrong[1, i] = both
    shares = " | ".join(_percent(row) for row in wrong)
    return f"| {images:,} | {points:g} | {shares} |"


def _spending(first: int, look: int) -> Spending:
    return Spending(0.05, 1.0, look, Looks(first).shares(look))


def _table(rng: np.random.Generator, k: int, n: int, deviations: Numbers) -> Numbers:
    """Accuracies, the baseline's first."""
    return 0.9 + SD / 100 * deviations[:, None] * rng.normal(size=(k, n))


def _judged(table: Numbers, spending: Spending, images: int | None) -> list[Evidence]:
    return [_evidence(one, len(table) - 1, spending, images) for one in contrasts(table.tolist())]


def _evidence(contrast: Contrast, comparisons: int, spending: Spending, images: int | None) -> Evidence:
    return of_contrast(contrast, spending, Images(images), comparisons)


def _finds(contrast: Contrast, size: float, spending: Spending, weight: float) -> bool:
    """Whether it would be found if this variant were better by so much: that changes no error."""
    better = contrast.mean + size
    return better > widened(half_width(contrast, spending.at(spending.look), spending.alpha), better, weight)


def _shows(seen: Evidence) -> bool:
    return seen.interval is not None and seen.interval.low > 0


def _middle(seen: Evidence) -> float:
    assert seen.interval is not None
    return (seen.interval.low + seen.interval.high) / 2


def _outside(seen: Evidence, truth: float) -> bool:
    assert seen.interval is not None
    return not seen.interval.low <= truth <= seen.interval.high


def _percent(of_matrices: Sequence[float] | Numbers) -> str:
    """`79.6 ± 0.5`: one standard error."""
    values = 100 * np.asarray(of_matrices, dtype=float)
    return f"{values.mean():.1f} ± {values.std() / math.sqrt(len(values)):.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
