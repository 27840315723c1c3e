"""Interim looks: at which numbers of seeds verdicts are given, and which share of the error rate each spends.

Looking, adding seeds and looking again gives several chances to be wrong. So verdicts are given only at
numbers of seeds that are settled before the first run: the planned one, and its doublings. Each has a share
of the error rate, and the shares add up to one. By the union bound all their intervals hold at once, at
whatever time the report is read, and however the number of added seeds is chosen (alpha spending;
docs/statistics-formulas.md has the sources). So a verdict rests on all looks up to now, by what their
intervals have in common, and seeds that are added take none away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FEWEST = 3
"""Fewest seeds for a verdict: a standard deviation from two is too uncertain."""

PILOT = 5
"""Seeds of the first verdict where fewer than FEWEST were planned."""

FIRST_SHARE = 0.9
"""Share of the error rate spent at the planned number; each doubling gets half of the remainder."""

MOST_SEEDS = 1000
"""Upper limit of the search for the number of seeds needed."""


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a comparison is judged."""

    planned: int
    """Number of seeds when the matrix was first planned."""
    fixed: bool = False
    """Whether MATRIX_SEEDS_PLANNED set it: then there is one look, with the whole error rate."""

    @property
    def first(self) -> int:
        return self.planned if self.fixed or self.planned >= FEWEST else PILOT

    def reached(self, seeds: int) -> int | None:
        """Return the last look that so many seeds allow; None before the first."""
        if seeds < self.first:
            return None
        # bit_length() - 1 is the whole part of the binary logarithm: the doublings that fit
        return self.first if self.fixed else self.first * 2 ** ((seeds // self.first).bit_length() - 1)

    def up_to(self, look: int) -> list[int]:
        """Return the looks up to one of them, the first one first: each has twice the seeds of the last."""
        found = [self.first]
        while found[-1] * 2 <= look:
            found.append(found[-1] * 2)
        return found

    def later(self, seeds: int) -> list[int]:
        """Return the looks beyond so many seeds, up to MOST_SEEDS."""
        if self.fixed:
            return [self.first] if seeds < self.first else []
        return [look for look in self.up_to(MOST_SEEDS) if seeds < look <= MOST_SEEDS]

    def shares(self, look: int) -> Mapping[int, float]:
        """Return the share of each look, the first one first: up to this one, and later ones up to
        MOST_SEEDS.
        """
        return {at: self.share(at) for at in [*self.up_to(look), *self.later(look)]}

    def share(self, look: int) -> float:
        """Return the share of the error rate spent at one of the looks."""
        if self.fixed:
            return 1.0
        # Halves of the remainder add up to one however many doublings follow.
        doublings = (look // self.first).bit_length() - 1
        return (1 - FIRST_SHARE) / 2**doublings if doublings else FIRST_SHARE
