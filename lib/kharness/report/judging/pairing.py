"""Pair the runs of a variant and its baseline by seed, and find planned runs that have no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kharness.report.collection import CellResult, Variant, why_incomplete
from kharness.report.judging.interim_looks import Looks
from kharness.report.metrics import Metric
from kharness.report.runs import WALL_TIMES, RunData
from kharness.report.settings import ReportSettings
from kharness.runs.exit_codes import NON_FINITE, OUT_OF_MEMORY, TIMED_OUT
from kharness.runs.status import FAILED, KILLED, TIMEOUT, UNREADABLE

# Causes in status.json that the training itself is responsible for, with their usual names.
_ENDS = {NON_FINITE: "diverged", OUT_OF_MEMORY: "ran out of memory", TIMED_OUT: "timed out"}

# Statuses of runs that neither completed nor wait, run or were stopped on request.
_BAD_ENDS = (FAILED, KILLED, "missing", TIMEOUT, UNREADABLE)


@dataclass(frozen=True)
class Pairing:
    """A variant and its baseline, seed by seed."""

    variant: Variant
    baseline: Variant
    looks: Looks
    planned: tuple[str, ...]
    """Seeds of both sides, in the order in which looks take them."""
    seeds: tuple[str, ...]
    """Seeds the comparison uses, complete on both sides; empty where the sides share none."""
    look: int | None
    """Number of seeds of the look that is reached; None before the first."""
    ours: Sequence[tuple[CellResult, float]]
    """Runs of the variant with their numbers; pairs have the same index."""
    theirs: Sequence[tuple[CellResult, float]]
    left_out: tuple[str, ...]
    """Names of runs whose seed has no number on the other side."""
    collapsed: str
    """`diverged in 1 of 5 seeds`, for either side; empty if no planned seed ended so."""
    waiting: str
    """`4 of 5 planned seeds` while seeds of the first look are missing; empty otherwise."""
    ties: tuple[str, ...] = ()
    """Seeds on which both sides failed by themselves."""
    held_back: int = 0
    """Number of seeds, complete on both sides, that count at a later look."""

    @property
    def paired(self) -> bool:
        return bool(self.seeds)

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.ours), len(self.theirs)

    @property
    def reached(self) -> Sequence[int]:
        """The looks up to now; one at most where the sides share no seed."""
        if self.look is None:
            return []
        return self.looks.up_to(self.look) if self.paired else [self.look]

    def at(self, look: int) -> Pairing:
        """Return the pairing as it was at a look that is reached: by the first seeds of the plan."""
        if look == self.look or not self.paired:
            return self
        first = slice(look)
        return replace(
            self, seeds=self.seeds[first], look=look, ours=self.ours[first], theirs=self.theirs[first]
        )

    @property
    def runs(self) -> tuple[Sequence[RunData], Sequence[RunData]]:
        return [cell.run for cell, _ in self.ours], [cell.run for cell, _ in self.theirs]


def pair_up(variant: Variant, baseline: Variant, metric: Metric, settings: ReportSettings) -> Pairing:
    """Select the runs to compare: the seeds of the last complete look, else all that there are."""
    first, second = _numbers(variant, metric), _numbers(baseline, metric)
    planned, ties = _planned(variant, baseline, settings, metric)
    looks = _looks(planned, variant, baseline, settings)
    by_seed, by_seed_of_baseline = _by_seed(first), _by_seed(second)
    met = set(by_seed) & set(by_seed_of_baseline)
    seeds = tuple(seed for seed in planned if seed in met)
    # Later seeds are ignored until their look is complete: which of them finish first may depend on the
    # result.
    look = looks.reached(next((i for i, seed in enumerate(planned) if seed not in met), len(planned)))
    held_back = len(seeds) - look if look is not None else 0
    if look is not None:
        seeds = planned[:look]
    used: tuple[Sequence[tuple[CellResult, float]], Sequence[tuple[CellResult, float]]]
    if seeds:
        used = [by_seed[seed] for seed in seeds], [by_seed_of_baseline[seed] for seed in seeds]
    elif planned:
        used = first, second  # no seed is complete on both sides
    else:
        used, look = (first, second), looks.reached(min(len(first), len(second)))
    alone = [cell.name for cell, _ in [*first, *second] if met and cell.seed not in met]
    least = looks.reached(len(planned)) if planned else None
    return Pairing(
        variant=variant,
        baseline=baseline,
        looks=looks,
        planned=planned,
        seeds=seeds,
        look=look,
        ours=used[0],
        theirs=used[1],
        left_out=tuple(alone),
        collapsed=_collapsed(variant, baseline, planned, metric),
        waiting="" if look is not None or least is None else f"{len(seeds)} of {looks.first} planned seeds",
        ties=ties,
        held_back=held_back,
    )


def numbers_on(variant: Variant, metric: Metric, seeds: Sequence[str]) -> list[float] | None:
    """Return the numbers of complete runs, in the order of the seeds; None unless each seed has one."""
    found = _by_seed(_numbers(variant, metric))
    return [found[seed][1] for seed in seeds] if all(seed in found for seed in seeds) else None


def rows_on(
    variants: Sequence[Variant], metric: Metric, seeds: Sequence[str]
) -> tuple[Sequence[Variant], Sequence[Sequence[float]]]:
    """Return the variants that have a number on each of these seeds, with those numbers."""
    rows = [(variant, numbers_on(variant, metric, seeds)) for variant in variants]
    found = [(variant, numbers) for variant, numbers in rows if numbers is not None]
    return [variant for variant, _ in found], [numbers for _, numbers in found]


def failed(variant: Variant) -> int:
    """Return the number of runs that ended badly; known failures do not count."""
    return sum(cell.run.status in _BAD_ENDS and not cell.known_failure for cell in variant.cells)


def failures(variant: Variant, metric: Metric) -> list[str]:
    """Return the planned runs that yield no number, each with the reason."""
    lines = []
    for cell in variant.cells:
        if not cell.run.complete:
            lines.append(f"{cell.name}: {why_incomplete(cell)}")
        elif cell.number(metric) is None:
            crowded = cell.run.crowded and metric.name in WALL_TIMES
            beside = " that counts: other work was on the machine" if crowded else ""
            lines.append(f"{cell.name}: complete without {metric.title}{beside}")
    return lines


def own_end(cell: CellResult, metric: Metric) -> str:
    """Return how a run ended without the number by its own fault; empty if it has it, or may still get it."""
    run = cell.run
    if run.complete:
        if cell.number(metric) is not None:
            return ""
        if run.crowded and metric.name in WALL_TIMES:
            return ""  # other work was on the machine, which is not the training's fault
        return "diverged" if run.nonfinite_records else f"had no {metric.title}"
    if run.stopped_early:
        return "was stopped early"
    if run.cause in _ENDS:
        return _ENDS[run.cause]
    if run.status == TIMEOUT:
        return "timed out"
    if run.status == FAILED:
        return "diverged" if run.nonfinite_records else FAILED
    return ""


def _planned(
    variant: Variant, baseline: Variant, settings: ReportSettings, metric: Metric
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the seeds of both sides, and ties; the seeds of the first plan come first.

    A seed on which both ended by themselves is a tie, and left out of the former.
    """
    theirs = {cell.seed: bool(own_end(cell, metric)) for cell in baseline.cells}
    common: dict[str, None] = {}
    ties: dict[str, None] = {}
    for cell in variant.cells:
        if cell.seed is not None and cell.seed in theirs:
            (ties if theirs[cell.seed] and own_end(cell, metric) else common)[cell.seed] = None
    return settings.in_order(common), tuple(ties)


def _looks(planned: Sequence[str], variant: Variant, baseline: Variant, settings: ReportSettings) -> Looks:
    if settings.seeds_planned:
        return Looks(settings.seeds_planned, fixed=True)
    if not planned:
        return Looks(min(len(variant.cells), len(baseline.cells)))
    first = settings.planned_first(planned)
    return Looks(first or len(planned))


def _collapsed(variant: Variant, baseline: Variant, planned: Sequence[str], metric: Metric) -> str:
    """Describe the failures, among the seeds both planned, or among all runs where they share none."""
    found, seeds = [], set(planned)
    for side in (variant, baseline):
        cells = [cell for cell in side.cells if not planned or cell.seed in seeds]
        ends = Counter(end for cell in cells if (end := own_end(cell, metric)))
        unit = "seeds" if planned else "runs"
        who = "" if side is variant else f"{side.label} "
        found += [f"{who}{end} in {count} of {len(cells)} {unit}" for end, count in ends.items()]
    return ", ".join(found)


def _numbers(variant: Variant, metric: Metric) -> list[tuple[CellResult, float]]:
    found = [(cell, cell.number(metric)) for cell in variant.complete]
    return [(cell, number) for cell, number in found if number is not None]


def _by_seed(numbers: Sequence[tuple[CellResult, float]]) -> Mapping[str, tuple[CellResult, float]]:
    """Index runs by seed, the first of several; runs with an unknown seed have no partner."""
    found: dict[str, tuple[CellResult, float]] = {}
    for cell, number in numbers:
        if cell.seed is not None:
            found.setdefault(cell.seed, (cell, number))
    return found
