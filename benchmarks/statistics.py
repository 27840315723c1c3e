"""How often the report's verdicts are wrong, and how often they find a difference that is there.

python benchmarks/statistics.py [MATRICES] [SCENARIO]

Simulated numbers, judged by the report's own code. False claims are family-wise: a matrix without any
difference that calls at least one variant better or worse, at any time that somebody looks. Beside
the power stands that of the test which knows what the simulation does: a two-way analysis of variance
(variant + seed) with Dunnett's comparisons. Each figure of MATRICES (default 200) simulated ones is printed
with its Monte Carlo error; a SCENARIO, or `power`, prints only what begins so.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path


def take_standard_library() -> None:
    """The folder of a script comes first on its path, so its neighbors' `import statistics` leads here."""
    path = Path(sysconfig.get_path("stdlib")) / "statistics.py"
    found = importlib.util.spec_from_file_location("statistics", path)
    assert found is not None
    assert found.loader is not None
    sys.modules["statistics"] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)


if __name__ == "statistics":
    take_standard_library()
else:
    import numpy as np
    from numpy.typing import NDArray

    from kharness.matrix.sweep.rank_errors import Measured, rank_ranges
    from kharness.report.collection import CellResult, Variant
    from kharness.report.judging.all_pairs import Chosen
    from kharness.report.judging.blocks import contrasts
    from kharness.report.judging.evidence import SeedsSeen, Spending, of_contrast, running
    from kharness.report.judging.images import Images
    from kharness.report.judging.interim_looks import Looks
    from kharness.report.judging.judgment import Comparison, Verdict, judge
    from kharness.report.judging.statistics import Interval
    from kharness.report.metrics import metric_named
    from kharness.report.runs import RunData
    from kharness.report.settings import ReportSettings

METRIC = "test_accuracy"
IMAGES = 1000
CAP = 20
"""Seeds at which whoever follows the advice gives up."""

# Tables of variants (the baseline first) by seeds, without any difference between the variants.
SCENARIOS: dict[str, Callable[[np.random.Generator, int, int], NDArray[np.float64]]] = {
    "normal": lambda rng, k, n: rng.normal(size=(k, n)),
    "skewed (log-normal)": lambda rng, k, n: -np.exp(rng.normal(size=(k, n))),
    "discrete (1,000 images)": lambda rng, k, n: rng.binomial(IMAGES, 0.98, size=(k, n)) / IMAGES,
    "correlated by seed": lambda rng, k, n: rng.normal(size=(k, n)) + 3 * rng.normal(size=n),
    "10 % collapse": lambda rng, k, n: rng.normal(size=(k, n)) - 50 * (rng.random((k, n)) < 0.1),
    "sd from 1 to 4": lambda rng, k, n: rng.normal(size=(k, n)) * np.linspace(1, 4, k)[:, None],
    "sd of one variant x 4": lambda rng, k, n: _noisy(rng, k, n, [k - 1], 4),
    "sd of one variant x 10": lambda rng, k, n: _noisy(rng, k, n, [k - 1], 10),
    "sd of the baseline x 2": lambda rng, k, n: _noisy(rng, k, n, [0], 2),
    "sd of the baseline x 4": lambda rng, k, n: _noisy(rng, k, n, [0], 4),
    "sd of every other x 3": lambda rng, k, n: _noisy(rng, k, n, range(0, k, 2), 3),
}
WAYS = ("planned seeds only", "seeds added as asked", "from 2 seeds on", "MATRIX_SEEDS_PLANNED")
VARIANTS = (2, 6, 10)
SEEDS = 5


def main(argv: list[str]) -> int:
    """Print the table of false claims, and that of power."""
    count = int(argv[0]) if argv else 200
    only = argv[1] if len(argv) > 1 else ""
    print(f"false claims in % of {count:,} matrices without a difference, {SEEDS} seeds planned")
    print(f"{'':26} {'variants':>8}" + "".join(f" {way:>21}" for way in WAYS))
    rows = [(name, k) for name in SCENARIOS if name.startswith(only) for k in VARIANTS]
    names, sizes = [name for name, _ in rows], [k for _, k in rows]
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        found = pool.map(partial(false_claims, count), names, sizes)
        for name, k, one in zip(names, sizes, found, strict=True):
            shares = "".join(f" {percent(part, count):>21}" for part in one)
            print(f"{name:26} {k:8}{shares}", flush=True)
    if "power".startswith(only):
        print_power(count)
    if "chosen".startswith(only):
        print_chosen(count)
    if "looks".startswith(only):
        print_looks(count)
    if "ranks".startswith(only):
        print_ranks(count)
    return 0


def print_ranks(count: int) -> None:
    """Leaderboards of equal rows: how often one shows a rank, and finds a row that is ahead by 6 sd."""
    print(f"\nfalse ranks in % of {count:,} leaderboards, and the % of pairs found of a row ahead by 6 sd")
    names = ("normal", "sd of one variant x 5", "sd of one variant x 3", "sd of every other x 3")
    for k, n in ((6, 3), (20, 2), (20, 3), (20, 5)):
        for name in names:
            rng, false, found = np.random.default_rng([k, n, *name.encode()]), 0, 0.0
            for number in range(count):
                table = RANKED[name](rng, k, n)
                false += shown_ranks(table) > 0
                if number < count / 4:
                    table[1] += 6
                    found += shown_ranks(table, 1) / (k - 1) / math.ceil(count / 4)
            print(f"{name:26} {k:4} rows {n} seeds {percent(false / count, count):>14} {100 * found:6.0f}")


RANKED: dict[str, Callable[[np.random.Generator, int, int], NDArray[np.float64]]] = {
    **SCENARIOS,
    "sd of one variant x 5": lambda rng, k, n: _noisy(rng, k, n, [k - 1], 5),
    "sd of one variant x 3": lambda rng, k, n: _noisy(rng, k, n, [k - 1], 3),
}


def shown_ranks(table: NDArray[np.float64], row: int | None = None) -> int:
    """Pairs that the leaderboard shows to differ, all or those that a row is ahead of."""
    order = np.argsort(-table.mean(1))
    found = rank_ranges([Measured(table[i].tolist(), (1,)) for i in order], minimize=False)
    assert found is not None
    behind = {int(i): len(table) - last for i, (_, last) in zip(order, found.ranges, strict=True)}
    return sum(behind.values()) if row is None else behind[row]


def print_chosen(count: int) -> None:
    """Pairs that somebody chose by their results: how often they are called different, where nothing is."""
    print(
        f"\nfalse claims in % of {count:,} matrices, {SEEDS} seeds, of pairs that were chosen after looking"
    )
    print(f"{'':26} {'variants':>8} {'best, worst':>14} {'as planned':>14} {'worst baseline':>16}")
    for name in ("normal", "correlated by seed", "sd of one variant x 4", "sd of every other x 3"):
        for k in (3, 10, 30):
            rng = np.random.default_rng([k, *name.encode()])
            found = [0, 0, 0]
            for _ in range(count):
                table = SCENARIOS[name](rng, k, SEEDS)
                order = np.argsort(table.mean(1))
                worst, best, rest = int(order[0]), int(order[-1]), [int(one) for one in order[1:]]
                found[0] += claims(judged(table, pairs=[(best, worst)], chosen=True))
                found[1] += claims(judged(table, pairs=[(best, worst)]))
                found[2] += claims(judged(table, pairs=[(one, worst) for one in rest], chosen=True))
            shares = "".join(f" {percent(one / count, count):>14}" for one in found)
            print(f"{name:26} {k:8}{shares}", flush=True)


def print_looks(count: int) -> None:
    """Ten looks at matrices that are planned with three seeds, and two at those planned with five."""
    print(f"\nafter each of ten looks (3 to 1,536 seeds), in % of {count:,} matrices without a difference")
    columns = ("first look", "any look", "truth left out", "contradict")
    print(f"{'':26} {'variants':>8}" + "".join(f" {column:>14}" for column in columns))
    rows = [(name, k) for name in LOOKED for k in (2, 6)]
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        found = pool.map(partial(of_ten_looks, count), *zip(*rows, strict=True))
        for (name, k), one in zip(rows, found, strict=True):
            shares = "".join(f" {percent(part, count):>14}" for part in one)
            print(f"{name:26} {k:8}{shares}", flush=True)
    print(f"\na true difference shown, in % of {count:,} matrices, {SEEDS} seeds planned and as many added")
    print(f"{'variants':>8} {'sd':>4} {'5 seeds':>12} {'10 alone':>12} {'5 lost by 10':>13} {'both':>12}")
    for k, effect in ((2, 1.0), (2, 2.0), (2, 3.0), (6, 1.0), (6, 2.0), (6, 3.0)):
        shares = "".join(f" {percent(part, count):>12}" for part in of_two_looks(count, k, effect))
        print(f"{k:8} {effect:4g}{shares}", flush=True)


LOOKED = ("normal", "skewed (log-normal)", "discrete (1,000 images)", "sd of one variant x 4")


def of_ten_looks(count: int, scenario: str, k: int) -> list[float]:
    """The share of matrices that claim something at the first look, and at any; whose last intervals leave
    out the truth; and in which looks contradict each other.
    """
    rng = np.random.default_rng([k, *scenario.encode()])
    wrong = np.zeros(4)
    for _ in range(count):
        told = told_by_looks(SCENARIOS[scenario](rng, k, 3 * 2**9))
        zero = [[interval is None or interval.excludes_zero for interval in of] for of in told]
        wrong += (
            any(of[0] for of in zero if of),
            any(any(interval is not None and interval.excludes_zero for interval in of) for of in told),
            any(of[-1] for of in zero if of),
            any(of[-1] is None for of in told if of),
        )
    return list(wrong / count)


def told_by_looks(table: NDArray[np.float64]) -> list[list[Interval | None]]:
    """The interval of each variant after each look, planned with three seeds."""
    looks, last = Looks(3), table.shape[1]
    images = Images(IMAGES if ((table >= 0) & (table <= 1)).all() else None)
    found: list[list[SeedsSeen]] = [[] for _ in table[1:]]
    for look in looks.up_to(last):
        spending = Spending(0.05, 1.0, look, looks.shares(last))
        for of, one in zip(found, contrasts(table[:, :look]), strict=True):
            of += of_contrast(one, spending, images, len(found), is_last=False).looks
    return [[interval for _, interval in running(of)] for of in found]


def of_two_looks(count: int, k: int, effect: float) -> list[float]:
    """How often the last variant, which is better, is shown to be: by the planned seeds, by the look at twice
    as many alone, by the former and not the latter, and by both together.
    """
    rng = np.random.default_rng([k, int(10 * effect)])
    shown = np.zeros(4)
    for _ in range(count):
        table = rng.normal(size=(k, 2 * SEEDS))
        table[-1] += effect
        last = judged(table, first=SEEDS)[-1]
        first, second = (look.interval.low > 0 for look in last.looks)
        shown += first, second, first and not second, last.verdict is Verdict.BETTER
    return list(shown / count)


def print_power(count: int) -> None:
    """One variant is better by so many standard deviations; how often that is found."""
    print(f"\na true difference found, in % of {count:,} matrices, {SEEDS} seeds")
    print(f"{'variants':>8} {'sd':>3} {'planned seeds':>14} {'fixed':>14} {'ANOVA + Dunnett':>16}")
    for k, effect in ((2, 2.0), (6, 2.0), (10, 2.0), (6, 3.0), (10, 3.0), (101, 7.0)):
        found = [0, 0, 0]
        rng, rounds = np.random.default_rng(k), min(count, 50) if k > 100 else count
        for _ in range(rounds):
            table = rng.normal(size=(k, SEEDS))
            table[-1] += effect
            for i, planned_seeds in enumerate((0, SEEDS)):
                found[i] += judged(table, planned_seeds=planned_seeds)[-1].verdict is Verdict.BETTER
            found[2] += anova_finds(table)
        shares = "".join(f" {percent(one / rounds, rounds):>14}" for one in found)
        print(f"{k:8} {effect:3g}{shares}", flush=True)


def false_claims(count: int, scenario: str, k: int) -> list[float]:
    """The share of matrices that claim something, in the order of WAYS."""
    rng = np.random.default_rng([k, *scenario.encode()])
    wrong = np.zeros(len(WAYS))
    for _ in range(count):
        table = SCENARIOS[scenario](rng, k, CAP)
        looked: dict[int, Sequence[Comparison]] = {}
        at_once, later = follows(table, SEEDS, looked)
        wrong += at_once, at_once or later, any(follows(table, 2, looked)), fixed(table)
    return list(wrong / count)


def follows(
    table: NDArray[np.float64], first: int, looked: dict[int, Sequence[Comparison]]
) -> tuple[bool, bool]:
    """Whether the first look claims something, and a later one, with as many more seeds as are asked for.

    `looked` keeps what was found: from SEEDS and from fewer than three planned seeds on, looks are the same.
    """
    n = first
    while True:
        if n not in looked:
            looked[n] = judged(table[:, :n], first=first)
        if claims(looked[n]):
            return n == first, n > first
        asked = [one.more_seeds or (one.next_look or 0) - n for one in looked[n]]
        asked = [more for more in asked if more > 0]
        if not asked or n + min(asked) > table.shape[1]:
            return False, False
        n += min(asked)


def fixed(table: NDArray[np.float64]) -> bool:
    """MATRIX_SEEDS_PLANNED, looked at with twice as many seeds; of fewer there is no verdict."""
    return claims(judged(table[:, : 2 * SEEDS], planned_seeds=SEEDS))


def judged(
    table: NDArray[np.float64],
    *,
    first: int = 0,
    planned_seeds: int = 0,
    pairs: Sequence[tuple[int, int]] = (),
    chosen: bool = False,
) -> Sequence[Comparison]:
    """Verdicts as of runs with these numbers; without `pairs` all with the first."""
    seeds = [*map(str, range(table.shape[1]))]
    variants = [variant(str(i), row, seeds) for i, row in enumerate(table.tolist())]
    settings = ReportSettings(seeds_planned=planned_seeds, first_seeds=tuple(seeds[:first]))
    asked = [(variants[i], variants[j]) for i, j in pairs or [(i, 0) for i in range(1, len(variants))]]
    metrics = [metric_named(METRIC)] * len(asked)
    return judge(asked, metrics, settings, chosen=Chosen([variants]) if chosen else None)


def variant(label: str, numbers: Sequence[float], seeds: Sequence[str]) -> Variant:
    """Complete runs with these results."""
    # images are known where numbers are shares of them
    start = {"dataset": {"test": IMAGES}} if all(0 <= number <= 1 for number in numbers) else {}
    cells = [
        CellResult(
            label,
            {"SEED": seed},
            RunData(NOWHERE, "complete", "", 1, start, {"steps_done": 1, METRIC: number}, {}, 0),
        )
        for seed, number in zip(seeds, numbers, strict=True)
    ]
    return Variant({}, label, cells)


NOWHERE = Path("nowhere")


def claims(comparisons: Sequence[Comparison]) -> bool:
    return any(one.verdict in (Verdict.BETTER, Verdict.WORSE) for one in comparisons)


def anova_finds(table: NDArray[np.float64]) -> bool:
    """The last variant against the first, by the residual of variant + seed."""
    k, n = table.shape
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    mean_square = (rest**2).sum() / ((k - 1) * (n - 1))
    t = (table[-1].mean() - table[0].mean()) / math.sqrt(2 * mean_square / n)
    return bool(t > dunnett(k - 1, (k - 1) * (n - 1)))


@lru_cache
def dunnett(comparisons: int, degrees: int) -> float:
    """Dunnett's critical value of 5 %, by simulation: shares no code with the report's."""
    rng = np.random.default_rng(0)
    largest: list[NDArray[np.float64]] = []  # without its type mypy takes a second for what is appended
    for _ in range(40):
        means = rng.normal(size=(10_000, comparisons + 1))
        error = np.sqrt(rng.chisquare(degrees, 10_000) / degrees)
        largest.append(np.abs(means[:, 1:] - means[:, :1]).max(1) / math.sqrt(2) / error)
    return float(np.quantile(np.concatenate(largest), 0.95))


def percent(part: float, count: int) -> str:
    """`4.6 ± 0.5`: one standard error."""
    return f"{100 * part:.1f} ± {100 * math.sqrt(part * (1 - part) / count):.1f}"


def _noisy(
    rng: np.random.Generator, k: int, n: int, which: Iterable[int], factor: float
) -> NDArray[np.float64]:
    sd = np.ones((k, 1))
    sd[list(which)] = factor
    return rng.normal(size=(k, n)) * sd


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
