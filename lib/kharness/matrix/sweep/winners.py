"""Best configuration of each member of a choice: the candidates of a fair, equally tuned comparison."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from kharness.config.make.typed import typed_make
from kharness.matrix.planning.axes import Axis

# With fewer values tried, each is an end of them.
FEWEST_VALUES = 3


@dataclass(frozen=True)
class Winner:
    """The best row with one value of a choice."""

    value: str
    rank: int
    values: Mapping[str, str]
    """Values of all symbols of the sweep."""
    mean: float
    ends: Mapping[str, str]
    """Symbols whose value is an end of those tried with this choice: `lowest` or `highest`."""


@dataclass(frozen=True)
class Winners:
    """The best of each value of `symbol`, in the order of their ranks."""

    symbol: str
    winners: Sequence[Winner]

    @property
    def lines(self) -> Sequence[str]:
        """One for each; where the range ended too early for it, that is said."""
        found = []
        width = max(len(one.value) for one in self.winners)
        for one in self.winners:
            others = [f"{name}={value}" for name, value in one.values.items() if name != self.symbol]
            ends = [f"{name} is the {end} that was tried" for name, end in one.ends.items()]
            parts = [one.value.ljust(width), f"rank {one.rank}", *others, f"{one.mean:.6g}"]
            found.append("  ".join(parts) + (f"  ({', '.join(ends)})" if ends else ""))
        return found

    def command(self, common: Mapping[str, str]) -> str:
        """Return the command that compares them on seeds the sweep has not used; `common` holds for all of
        them.
        """
        groups = [
            " ".join(str(Axis(name, [value])) for name, value in one.values.items()) + " SEED=101..105"
            for one in self.winners
        ]
        asked = {**common, "MATRIX_AXES": groups[0], "MATRIX_INCLUDE": "; ".join(groups[1:])}
        return typed_make(shlex.join(["test_matrix", *(f"CONFIG_{name}={asked[name]}" for name in asked)]))


def winners_of(
    symbols: Sequence[str],
    ranked: Sequence[tuple[Mapping[str, str], float]],
    tried: Sequence[Mapping[str, str]],
) -> Sequence[Winners]:
    """For each symbol with names as values, in a sweep of several symbols.

    `ranked` has values and mean of each configuration, the best first, `tried` the values of all trials.
    """
    names = [s for s in symbols if any(_number(one.get(s, "0")) is None for one in tried)]
    return [
        Winners(symbol, _winners(symbol, ranked, tried))
        for symbol in names
        if len(symbols) > 1 and len({values.get(symbol) for values, _ in ranked} - {None}) > 1
    ]


def _winners(
    symbol: str, ranked: Sequence[tuple[Mapping[str, str], float]], tried: Sequence[Mapping[str, str]]
) -> Sequence[Winner]:
    found: dict[str, Winner] = {}
    for rank, (values, mean) in enumerate(ranked, 1):
        value = values.get(symbol)
        if value is not None and value not in found:
            alike = [one for one in tried if one.get(symbol) == value]
            found[value] = Winner(value, rank, values, mean, _ends(values, alike))
    return [*found.values()]


def _ends(values: Mapping[str, str], tried: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    found = {}
    for name, text in values.items():
        numbers = {_number(one[name]) for one in tried if name in one}
        known = {number for number in numbers if number is not None}
        if len(known) < max(FEWEST_VALUES, len(numbers)):
            continue
        if (number := _number(text)) in (min(known), max(known)):
            found[name] = "lowest" if number == min(known) else "highest"
    return found


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
