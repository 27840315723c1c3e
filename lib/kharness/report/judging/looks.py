"""At which numbers of seeds a verdict may be given, and how much of the error each of them may spend.

Who looks, adds seeds and looks again has several chances to be wrong. So verdicts are given only at numbers
of seeds that are settled before the first run: the planned one, and its doublings. Each has a share of the
error that is allowed, and the shares add up to one. By the union bound that holds whenever anybody looks, and
however the number of added seeds is chosen (alpha spending; docs/statistics-formulas.md has the sources).
"""

from __future__ import annotations

from dataclasses import dataclass

FEWEST = 3
"""Seeds that a verdict takes: the spread of two is known too badly to judge by."""

PILOT = 5
"""Where fewer than FEWEST seeds were planned, verdicts begin here."""

FIRST_SHARE = 0.9
"""Of the error, spent at the planned number; each doubling gets half of what is left."""

MOST_SEEDS = 1000
"""Beyond this many, the number of seeds needed is not searched for."""


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which a comparison is judged."""

    planned: int
    """When the question was first planned."""
    fixed: bool = False
    """By MATRIX_SEEDS_PLANNED: there is one look, and it has all of the error."""

    @property
    def first(self) -> int:
        return self.planned if self.fixed or self.planned >= FEWEST else PILOT

    def reached(self, seeds: int) -> int | None:
        """The last look that so many seeds allow; None before the first."""
        if seeds < self.first:
            return None
        return self.first if self.fixed else self.first * 2 ** ((seeds // self.first).bit_length() - 1)

    def later(self, seeds: int) -> list[int]:
        """The looks beyond so many seeds, up to MOST_SEEDS."""
        if self.fixed:
            return [self.first] if seeds < self.first else []
        found, look = [], self.first
        while look <= MOST_SEEDS:
            found += [look] if look > seeds else []
            look *= 2
        return found

    def share(self, look: int) -> float:
        """Of the error, at one of the looks."""
        if self.fixed:
            return 1.0
        doublings = (look // self.first).bit_length() - 1
        return (1 - FIRST_SHARE) / 2**doublings if doublings else FIRST_SHARE
