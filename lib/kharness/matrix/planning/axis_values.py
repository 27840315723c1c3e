"""The values of axes against the option tree: `all` and `1..5` written out, each value as assignments.

And values on make's command line that are axes: `SEED=1..5 OPTIMIZER=sgd,adam`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from kharness.config.affects import Affects
from kharness.config.assignment import Layer, Origin
from kharness.config.dotconfig import read_text
from kharness.config.errors import ConfigError
from kharness.config.make.variables import sets_symbol, symbol_of
from kharness.config.places import asked_path, home, shown_from
from kharness.config.refused import ALL, RANGE, KnownOptions, several
from kharness.config.tree import Tree
from kharness.matrix.planning.axes import Axis, parse_axes, refuse_repeated
from kharness.runs.errors import MatrixError

# Why no cell can decide these; of the other settings of a matrix it is the same for all.
NO_AXIS = {
    "MATRIX_AXES": "it says what the axes are",
    "RESULTS_DIR": "it says where the matrix lies",
    "TRACKER_RUN_NAME": "a matrix names its runs after their cells",
}

LONGEST_RANGE = 10_000
# An end of a range to search in.
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?"
# So many refused values are listed in an error; who reads the twentieth knows the pattern.
MOST_LISTED = 20


@dataclass(frozen=True)
class Fragment:
    """A file of assignments as it was when the matrix was planned."""

    value: str
    """Name of the value on the axis."""
    file: str
    text: str

    @property
    def sha256(self) -> str:
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class SettledAxis:
    """An axis whose every value is known to the tree."""

    axis: Axis
    layers: Mapping[str, Layer]
    """Assignments of each value."""
    fragments: Sequence[Fragment] = ()

    @property
    def symbol(self) -> str:
        return self.axis.symbol


def is_setting(affects: Affects, symbol: str) -> bool:
    """Whether a symbol shapes the matrix and so is the same for all its cells."""
    return affects.touches(symbol, "matrix")


def settle(tree: KnownOptions, axes: Sequence[Axis], *, source: str = "MATRIX_AXES") -> list[SettledAxis]:
    """The axes with every value written out; MatrixError lists every value that no cell could take.

    `source` is the setting that holds them; empty for axes that were given one by one.
    """
    settled: list[SettledAxis] = []
    bad: list[ConfigError] = []
    for axis in axes:
        if is_setting(tree.affects, axis.symbol):
            bad.append(ConfigError(_no_axis(axis.symbol), hint="vary what cells are trained with"))
            continue
        try:
            found = _fragments(tree, axis) if axis.files else _symbol_values(tree, axis, source, bad)
        except ConfigError as error:
            bad.append(error)
        else:
            settled.append(found)
    for one in settled:
        bad += [error for layer in one.layers.values() for error in tree.out_of_range(layer)]
    if bad:
        raise _refused(bad, source)
    return settled


def written_out(tree: KnownOptions, symbol: str, value: str) -> list[str]:
    """The values that one text means: every member of a choice for `all`, every number for `1..5`."""
    members = tree.aliases.get(symbol, {})
    if value == ALL and members and ALL not in members:
        return list(members)
    match = RANGE.fullmatch(value)
    if not match or not _is_int(tree, symbol):
        return [value]
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise ConfigError(f"{symbol}={value} is empty", hint=f"write {symbol}={last}..{first}")
    if last - first >= LONGEST_RANGE:
        raise ConfigError(
            f"{symbol}={value} is {last - first + 1} values", hint=f"at most {LONGEST_RANGE} are taken"
        )
    return [str(number) for number in range(first, last + 1)]


def _symbol_values(tree: KnownOptions, axis: Axis, source: str, bad: list[ConfigError]) -> SettledAxis:
    members = tree.aliases.get(axis.symbol, {})
    written = [value for given in axis.values for value in written_out(tree, axis.symbol, given)]
    values = [tree.in_case(axis.symbol, value, members) for value in written]
    settled = replace(axis, values=values)
    refuse_repeated(settled, source)
    shown = str(axis)
    layers: dict[str, Layer] = {}
    for value in values:
        try:
            tree.assignments(axis.symbol, value, Origin("matrix axis", f"{axis.symbol}={value}"))
            layers[value] = tree.assignments(axis.symbol, value, Origin("matrix axis", shown))
        except ConfigError as error:
            bad.append(_with_bars(error, axis.symbol, value))
    return SettledAxis(settled, layers)


def _with_bars(error: ConfigError, symbol: str, value: str) -> ConfigError:
    """The refusal of one value; its hint says how several are written where that was meant: `1,2`, `1-5`."""
    numbers = re.fullmatch(r"([0-9]+)-([0-9]+)", value, re.ASCII)
    meant = "..".join(numbers.groups()) if numbers else "|".join(filter(None, re.split(r"[,\s]+", value)))
    return ConfigError(str(error), hint=f"write {symbol}={meant}") if meant != value else error


def _fragments(tree: KnownOptions, axis: Axis) -> SettledAxis:
    if axis.symbol in tree.options or axis.symbol == "TRACKER":
        raise ConfigError(
            f"{axis.symbol} is a symbol and takes no fragments",
            hint=f"give the axis a name of its own, as in augment=@{axis.files[0]}",
        )
    assert isinstance(tree, Tree)  # only axes of symbols are settled without it
    fragments = list(_read(axis, tree.root))
    layers: dict[str, Layer] = {}
    for fragment in fragments:
        layers[fragment.value] = layer = tree.parse(fragment.text, fragment.file, "fragment")
        for assignment in layer:
            if is_setting(tree.affects, assignment.symbol):
                raise ConfigError(f"{assignment.origin.where}: {_no_axis(assignment.symbol)}")
    return SettledAxis(axis, layers, fragments)


def _read(axis: Axis, root: Path) -> Iterator[Fragment]:
    for value, file in zip(axis.values, axis.files, strict=True):
        path = home(root) / asked_path(axis.symbol, file)
        shown = shown_from(root, path)
        yield Fragment(value, shown, read_text(path, shown))


def _no_axis(symbol: str) -> str:
    reason = NO_AXIS.get(symbol, "it is the same for all cells of a matrix")
    return f"{symbol} cannot be an axis: {reason}"


def _is_int(tree: KnownOptions, symbol: str) -> bool:
    option = tree.options.get(symbol)
    if option is None:
        return False
    spec = option.value_type
    return option.kind == "int" or (spec is not None and spec.item == "int" and not spec.is_list)


def _refused(bad: Sequence[ConfigError], source: str) -> MatrixError:
    """One error for all."""
    within, remedy = f" of {source}" if source else "", f"fix {source}" if source else "change all of them"
    if len(bad) == 1:
        return MatrixError(f"{source}: {bad[0]}" if source else str(bad[0]), hint=bad[0].hint or remedy)
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in bad[:MOST_LISTED]]
    more = [f"… and {len(bad) - MOST_LISTED} more"] if len(bad) > MOST_LISTED else []
    return MatrixError("\n  ".join([f"{len(bad)} values{within} are refused", *lines, *more]), hint=remedy)


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


def check_given_axes(tree: KnownOptions, variables: Mapping[str, str], root: Path) -> None:
    """MatrixError for axes among make's variables that no cell could have; files are only read."""
    settle(tree, list(given_axes(tree, variables)[0].axes.values()), source="")
    if text := variables.get("CONFIG_MATRIX_AXES", "").strip():
        axes = parse_axes(text)
        settle(tree, [axis for axis in axes if not axis.files])
        try:
            for axis in filter(lambda axis: axis.files, axes):
                list(_read(axis, root))
        except ConfigError as error:
            raise _refused([error], "MATRIX_AXES") from None


def given_axes(tree: KnownOptions, variables: Mapping[str, str]) -> tuple[GivenAxes, dict[str, str]]:
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
