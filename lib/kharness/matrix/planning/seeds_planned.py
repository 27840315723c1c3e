"""The seeds a matrix was first planned with, so that a report can count later looks at it.

Seeds are added to a matrix itself (`make continue SEED=1..10`), or by planning a longer one, whose first
seeds are those of an earlier one. So each plan notes what it asks, and a later plan in the same folder of
results that asks it of the same seeds takes over how many were planned at first. Fresh seeds alone are a new
experiment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kharness.config.affects import Affects
from kharness.config.make.typed import typed, typed_setting
from kharness.config.values import Value
from kharness.matrix.planning.cells import Cell
from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON
from kharness.runs.latest import shown
from kharness.runs.matrix_plan import read_matrix_json, takes_seeds
from kharness.runs.seeds_of_run import more_seeds
from kharness.runs.standing import is_missing

SEED = "SEED"


@dataclass(frozen=True)
class SeedsPlanned:
    """The entry `seeds` of matrix.json."""

    first: tuple[str, ...]
    """Seeds of the first plan."""
    planned: int = 0
    """MATRIX_SEEDS_PLANNED of that first plan; 0 where nothing was fixed."""
    earlier: tuple[str, ...] = ()
    """The matrices in which the question was looked at before, the oldest first."""
    order: tuple[str, ...] = ()
    """Seeds of this plan and of earlier ones, as they were first planned: looks take them in this order."""
    variants: tuple[str, ...] = ()
    """A hash of the configuration of each variant, without its seed."""
    notes: tuple[str, ...] = ()
    """Lines on a request that came too late, and on runs that are there already; not kept in the
    file."""

    def content(self) -> dict[str, object]:
        """The entry of matrix.json."""
        return {
            "first": list(self.first),
            "planned": self.planned,
            "earlier": list(self.earlier),
            "order": list(self.order),
            "variants": list(self.variants),
        }


def seeds_planned(
    cells: Sequence[Cell], settings: Mapping[str, Value], results: Path, *, command: Sequence[str] = ()
) -> SeedsPlanned:
    """Return the entry for a matrix that is being planned in a folder of results.

    `command` is what runs the cells with their values, where that is a program of its own.
    """
    seeds = tuple(dict.fromkeys(_seed(cell) for cell in cells))
    asked = settings.get("MATRIX_SEEDS_PLANNED", 0)
    fixed = asked if isinstance(asked, int) else 0
    runs = {(_variant(cell, command), _seed(cell)) for cell in cells}
    variants = tuple(dict.fromkeys(_variant(cell, command) for cell in cells))
    earlier = list(_earlier(results))
    notes = _there_already(runs, seeds, earlier)
    before = [
        (one.directory.name, one.seeds)
        for one in earlier  # at least one comparison is the same, and of runs that are the same
        if len({*one.seeds.variants} & {*variants}) > 1 and {*one.seeds.first} & {*seeds}
    ]
    if not before:
        return SeedsPlanned(seeds, fixed, order=seeds, variants=variants, notes=notes)
    name, first = before[0]
    order = dict.fromkeys([*(seed for _, found in before for seed in found.order), *seeds])
    if fixed and first.planned != fixed:
        had = f"with {first.planned}" if first.planned else "without it"
        late = f"MATRIX_SEEDS_PLANNED={fixed} comes too late: {name} requested the same {had}"
        notes = (f"{late}, and that counts", *notes)
    names = tuple(name for name, _ in before)
    return SeedsPlanned(first.first, first.planned, names, tuple(order), variants, notes)


Run = tuple[str, str]
"""A run as its variant's hash and its seed."""


@dataclass(frozen=True)
class _Earlier:
    """A matrix that was planned before."""

    directory: Path
    seeds: SeedsPlanned
    cells: Mapping[Run, str]
    """Names of its cells."""
    takes_seeds: bool
    """Whether seeds can be added to it."""


def _there_already(
    runs: Collection[Run], seeds: Sequence[str], earlier: Sequence[_Earlier]
) -> tuple[str, ...]:
    """Return a note on the matrix that has the most of these runs, the newest of several; empty for none."""
    found, most = None, 0
    for one in earlier:
        number = sum(run in one.cells for run in runs)
        if number and number >= most:
            found, most = one, number
    if found is None:
        return ()
    where = shown(found.directory)
    complete = sum(not is_missing(found.directory / found.cells[run]) for run in runs if run in found.cells)
    if most < len(runs):
        them = "all" if complete == most else f"{complete} of them"
        has = f"{where} has {most} of these {len(runs)} runs already, {them} complete"
        if found.takes_seeds and {variant for variant, _ in runs} == {*found.seeds.variants}:
            listed = more_seeds(seeds, len(seeds)).replace("|", ",")
            axis = typed_setting(f"SEED={listed}", f"-a seed={listed}")
            only = f"{typed('continue', where)} {axis} trains only the missing"
            return (f"{has}: {only}; here all {len(runs)} are trained",)
        return (f"{has}; all {len(runs)} are trained here",)
    if complete == most:
        has = f"{where} has these runs already, all complete: {typed('summary', where)} compares them"
    else:
        only = f"{typed('continue', where)} trains only what is missing"
        has = f"{where} has these runs already, {complete} of {most} complete: {only}"
    return (f"{has}; here all are trained again",)


def _earlier(results: Path) -> Iterator[_Earlier]:
    """The plans in a folder that say what they ask, the oldest first."""
    found = []
    for path in results.glob(f"*/{MATRIX_JSON}"):
        if path.parent.is_symlink():
            continue  # `latest` is one of the others
        try:
            content = read_matrix_json(path.parent)
            seeds = content["seeds"]
            first = tuple(map(str, seeds["first"]))
            planned = SeedsPlanned(
                first,
                int(seeds["planned"]),
                order=tuple(map(str, seeds.get("order", first))),
                variants=tuple(map(str, seeds["variants"])),
            )
            cells = _names(content["cells"], planned.variants)
            found.append(
                (float(content["created"]), _Earlier(path.parent, planned, cells, takes_seeds(content)))
            )
        except (MatrixError, ValueError, KeyError, TypeError):
            continue  # damaged, or a sweep, which asks nothing of seeds
    for _, one in sorted(found, key=lambda one: (one[0], one[1].directory.name)):
        yield one


def _names(cells: Sequence[Mapping[str, Any]], variants: Sequence[str]) -> Mapping[Run, str]:
    """Return the names of cells by run; none where it is unknown which of the variants each is of."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[str, str]]] = {}
    for cell in cells:
        values = dict(cell["values"])
        seed = values.pop(SEED, "")
        groups.setdefault(tuple(sorted(values.items())), []).append((seed, cell["name"]))
    # Variants are in the order of their first cells, so that the two lists fit each other; they do not where
    # two groups train the same.
    if len(groups) != len(variants):
        return {}
    return {
        (variant, seed): name
        for variant, of_variant in zip(variants, groups.values(), strict=True)
        for seed, name in of_variant
    }


def _seed(cell: Cell) -> str:
    return str(cell.resolved.values.get(SEED)) if cell.resolved else str(cell.values.get(SEED))


def _variant(cell: Cell, command: Sequence[str]) -> str:
    values = cell.resolved.values if cell.resolved else dict(cell.values)
    affects = cell.resolved.affects if cell.resolved else Affects()
    lines = sorted(f"{name}={values[name]}" for name in affects.names(values, "results") if name != SEED)
    return hashlib.sha256("\n".join([*lines, *command]).encode()).hexdigest()[:16]
