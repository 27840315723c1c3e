"""The space that a sweep draws from: its ranges, and how values of them become a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kharness.config.errors import ConfigError
from kharness.matrix.planning.cells import Cell, MistakeError, Refused
from kharness.matrix.planning.matrix_json import Plan
from kharness.matrix.sweep.ranges import Range
from kharness.matrix.sweep.search import random_values, size, unseen
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Launch


class Space(Protocol):
    """The trials that there could be: trainings of the tree, or runs of anybody's command."""

    @property
    def ranges(self) -> Sequence[Range]:
        """In the order in which they were given."""

    def cell(self, name: str, values: Mapping[str, str]) -> Cell:
        """Return the trial of these values; ConfigError where they are refused."""

    def begin(self, cell: Cell, plan: Plan) -> Launch:
        """Write a trial's directory in that of the plan, not flushed to the disk."""


def take(
    space: Space, name: str, proposals: Iterable[Mapping[str, str]]
) -> tuple[Cell | None, list[Refused]]:
    """Return the first of the proposals that is not refused, and those that were refused before it."""
    refused: list[Refused] = []
    for values in proposals:
        try:
            return space.cell(name, values), refused
        except MistakeError:
            raise
        except ConfigError as error:
            refused.append(Refused(name, values, str(error)))
    return None, refused


def draw(space: Space, count: int, *, seed: int) -> tuple[list[Cell], list[Refused]]:
    """Return so many different random trials, fewer where the space has no more, and what was refused."""
    seen: set[tuple[str, ...]] = set()
    cells: list[Cell] = []
    refused: list[Refused] = []
    for number in range(1, count + 1):
        if len(seen) >= size(space.ranges):
            break
        proposals = unseen(random_values(space.ranges, seed=seed, number=number), seen)
        cell, others = take(space, trial_name(number), proposals)
        refused += others
        if cell is None:
            break
        cells.append(cell)
    return cells, refused


def trial_name(number: int) -> str:
    return f"trial-{number:04}"


def refuse_seed(ranges: Iterable[Range], again: str) -> None:
    """MatrixError where a search would choose a seed; `again` is the command that takes several."""
    if any(one.symbol == "SEED" and size([one]) > 1 for one in ranges):
        raise MatrixError(
            "SEED cannot be searched: it is no way to train better",
            hint=f"give it one value, and train the best trials again with other seeds: {again}",
        )
