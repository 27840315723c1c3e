"""Values on make's command line that are axes of a matrix: `SEED=1..5 OPTIMIZER=sgd,adam`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kharness.config.make.variables import sets_symbol, symbol_of
from kharness.config.refused import several
from kharness.config.tree import Tree
from kharness.matrix.planning.axes import Axis, parse_axes
from kharness.matrix.planning.axis_values import is_setting
from kharness.runs.errors import MatrixError


@dataclass(frozen=True)
class GivenAxes:
    """Values on the command line for symbols that may be axes, by symbol."""

    axes: Mapping[str, Axis] = field(default_factory=dict)
    """Axes of several values."""
    single: Mapping[str, Axis] = field(default_factory=dict)
    """Axes of one value, used only to replace one of MATRIX_AXES."""

    def over(self, text: str, *, is_given: bool) -> str:
        """MATRIX_AXES with these in place of its own axes, and new ones at the end.

        MatrixError where MATRIX_AXES is given on the command line as well and says something else.
        """
        if not (self.axes or self.single):
            return text
        configured = parse_axes(text) if text.strip() else []
        own = {**self.single, **self.axes}
        axes = {axis.symbol: own.get(axis.symbol, axis) for axis in configured}
        for before in configured:
            if is_given and str(axes[before.symbol]) != str(before):
                raise MatrixError(
                    f"{axes[before.symbol]} contradicts the axis {before} of MATRIX_AXES",
                    hint="leave one of them out",
                )
        return " ".join(map(str, {**axes, **self.axes}.values()))


NO_AXES = GivenAxes()


def given_axes(tree: Tree, variables: Mapping[str, str]) -> tuple[GivenAxes, dict[str, str]]:
    """The axes among make's variables, and the variables without those of several values.

    What shapes the matrix around its cells has one value: it stays a variable and is checked as such.
    """
    axes: dict[str, Axis] = {}
    single: dict[str, Axis] = {}
    others = dict(variables)
    for name, value in variables.items():
        symbol = symbol_of(name)
        if not sets_symbol(name) or is_setting(tree.affects, symbol):
            continue
        values = several(tree, symbol, value)
        if not all(values):
            meant = ",".join(filter(None, values))
            raise MatrixError(f"{symbol}={value} has an empty value", hint=f"write {symbol}={meant}")
        (axes if values else single)[symbol] = Axis(symbol, values or [value])
        if values:
            del others[name]
    return GivenAxes(axes, single), others
