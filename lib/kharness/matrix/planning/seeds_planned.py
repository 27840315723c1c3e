"""The seeds a matrix was first planned with, so that a report can count later looks at it.

Seeds are added by planning a longer matrix, whose first seeds are those of an earlier one. So each plan
notes what it asks, and a later plan in the same folder of results that asks it of the same seeds takes over
how many were planned at first. Fresh seeds alone are a new experiment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.values import Value
from kharness.matrix.planning.cells import Cell
from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON
from kharness.runs.matrix_plan import read_matrix_json

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
    note: str = ""
    """Note on a request that came too late; not kept in the file."""

    def content(self) -> dict[str, object]:
        """For matrix.json."""
        return {
            "first": list(self.first),
            "planned": self.planned,
            "earlier": list(self.earlier),
            "order": list(self.order),
            "variants": list(self.variants),
        }


def seeds_planned(cells: Sequence[Cell], settings: Mapping[str, Value], results: Path) -> SeedsPlanned:
    """Return the entry for a matrix that is being planned in a folder of results."""
    seeds = tuple(dict.fromkeys(_seed(cell) for cell in cells))
    asked = settings.get("MATRIX_SEEDS_PLANNED", 0)
    fixed = asked if isinstance(asked, int) else 0
    variants = tuple(dict.fromkeys(_variant(cell) for cell in cells))
    before = [(name, found) for name, found in _earlier(results) if _asks_again(found, seeds, variants)]
    if not before:
        return SeedsPlanned(seeds, fixed, order=seeds, variants=variants)
    name, first = before[0]
    order = dict.fromkeys([*(seed for _, found in before for seed in found.order), *seeds])
    note = ""
    if fixed and first.planned != fixed:
        had = f"with {first.planned}" if first.planned else "without it"
        note = (
            f"MATRIX_SEEDS_PLANNED={fixed} comes too late: {name} requested the same {had}, and that counts"
        )
    earlier = tuple(name for name, _ in before)
    return SeedsPlanned(first.first, first.planned, earlier, tuple(order), variants, note)


def _asks_again(found: SeedsPlanned, seeds: Sequence[str], variants: Sequence[str]) -> bool:
    """Whether at least one comparison is the same, and of runs that are the same."""
    return len({*found.variants} & {*variants}) > 1 and bool({*found.first} & {*seeds})


def _earlier(results: Path) -> Iterator[tuple[str, SeedsPlanned]]:
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
            found.append((float(content["created"]), path.parent.name, planned))
        except (MatrixError, ValueError, KeyError, TypeError):
            continue  # damaged, or a sweep, which asks nothing of seeds
    for _, name, planned in sorted(found, key=lambda one: one[:2]):
        yield name, planned


def _seed(cell: Cell) -> str:
    return str(cell.resolved.values.get(SEED)) if cell.resolved else str(cell.values.get(SEED))


def _variant(cell: Cell) -> str:
    values = cell.resolved.values if cell.resolved else dict(cell.values)
    affects = cell.resolved.affects if cell.resolved else Affects()
    lines = sorted(f"{name}={values[name]}" for name in affects.names(values, "results") if name != SEED)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
