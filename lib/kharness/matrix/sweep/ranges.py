"""The range file of a sweep: like a preset, but a value may be several.

    CONFIG_NUM_EPOCHS=5                        one value for all trials
    CONFIG_OPTIMIZER="sgd|adamw"               each of these; `all` for every member of a choice
    CONFIG_LEARNING_RATE="0.01:0.01:0.05"      start:step:end in exact decimals, the end included if hit
    CONFIG_BATCH_SIZE="16..256"                every integer between, both included
    CONFIG_LEARNING_RATE="1e-4..1e-1 log"      anything between, evenly by order of magnitude

What is written with `..` for a symbol that is no integer, or with `log`, can be searched and has no
grid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.dotconfig import ConfigLine, parse_lines, read_text, unquote
from kharness.config.errors import ConfigError
from kharness.config.make.typed import typed_setting
from kharness.config.places import asked_path
from kharness.config.refused import ALL
from kharness.config.tree import Tree
from kharness.matrix.planning.axes import split_values, unquoted
from kharness.matrix.planning.axis_values import NO_AXIS, NUMBER, is_setting
from kharness.runs.errors import MatrixError
from monitoring.counts import counted

EXAMPLE = 'lines are CONFIG_LEARNING_RATE="1e-3|3e-4", "0.1:0.1:0.5", "1e-4..1e-1 log", or single values'
MOST_VALUES = 10_000

_STEPS = re.compile(rf"({NUMBER}):({NUMBER}):({NUMBER})", re.ASCII)
_BETWEEN = re.compile(rf"({NUMBER})\.\.({NUMBER})( +log)?", re.ASCII)


@dataclass(frozen=True)
class Listed:
    """A symbol with values that are written out."""

    symbol: str
    text: str
    """Text in the file."""
    values: Sequence[str]
    in_order: bool
    """Whether they are evenly spaced numbers, of which neighbors perform alike."""


@dataclass(frozen=True)
class Between:
    """A symbol that may take any number of a range, both ends included."""

    symbol: str
    text: str
    low: Decimal
    high: Decimal
    log: bool
    whole: bool


Range = Listed | Between


@dataclass(frozen=True)
class RangeFile:
    """The ranges that a sweep varies, and the values it fixes."""

    ranges: Sequence[Range]
    """In the order of the file."""
    fixed: Layer


def range_file(variables: Mapping[str, str]) -> Path:
    """RANGE_CONFIG= of make; ConfigError if it is not given, or BASELINE is."""
    name = variables.get("RANGE_CONFIG", "").strip()
    if not name:
        example = 'with lines such as CONFIG_LEARNING_RATE="0.01|0.05"'
        raise ConfigError("RANGE_CONFIG is not given", hint=f"make sweep RANGE_CONFIG=my.ranges, {example}")
    if "BASELINE" in variables:
        raise ConfigError("BASELINE has no effect on a sweep", hint="leave it out: its leaderboard has none")
    return asked_path("RANGE_CONFIG", name).absolute()


def read_ranges(tree: Tree, path: Path) -> RangeFile:
    """Read a range file; MatrixError or ConfigError names the line that cannot be taken."""
    shown = tree.shown(path)
    ranges: list[Range] = []
    fixed: list[Assignment] = []
    seen: set[str] = set()
    for line in parse_lines(read_text(path, shown), shown):
        where = f"{shown}:{line.number}"
        if line.symbol in seen:
            raise MatrixError(f"{where}: {line.symbol} stands there twice", hint="keep one of the lines")
        seen.add(line.symbol)
        found = _read_line(tree, line, where)
        if isinstance(found, (Listed, Between)):
            ranges.append(found)
        else:
            fixed += found
    if not ranges:
        raise MatrixError(f"{shown}: no line gives a symbol more than one value", hint=EXAMPLE)
    return RangeFile(ranges, fixed)


def parse_range(tree: Tree, symbol: str, text: str, where: str) -> Range:
    """A range from its text, as read_ranges made it."""
    found = _range(tree, symbol, text, where)
    if found is None:
        raise MatrixError(f"{where}: {symbol}={text} is one value", hint=EXAMPLE)
    return found


def _read_line(tree: Tree, line: ConfigLine, where: str) -> Range | Layer:
    origin = Origin("range file", where)
    if line.text is None:
        return tree.assignments(line.symbol, "n", origin)
    text = _plain(line, where)
    tree.symbol(line.symbol, text, origin)
    found = _range(tree, line.symbol, text, where)
    if found is None:
        if line.symbol in NO_AXIS and line.symbol != "RESULTS_DIR":
            raise MatrixError(f"{where}: {line.symbol} means nothing to a sweep", hint="remove the line")
        value = text[1:-1] if re.fullmatch(r"'[^']*'", text) else text
        return tree.assignments(line.symbol, value, origin)
    if is_setting(tree.affects, line.symbol):
        raise MatrixError(
            f"{where}: {line.symbol} cannot vary: it is the same for all trials of a sweep",
            hint="give it one value",
        )
    for value in _ends(found):
        tree.assignments(line.symbol, value, origin)
    return found


def _plain(line: ConfigLine, where: str) -> str:
    """The text without its double quotes, which may be missing around numbers too."""
    assert line.text is not None
    if not line.text.startswith('"'):
        if "#" in line.text:
            raise MatrixError(
                f"{where}: {line.symbol}={line.text} is followed by an inline comment",
                hint="put the comment on a line of its own",
            )
        return line.text.strip()
    try:
        return unquote(line.text)
    except ValueError as error:
        raise MatrixError(f"{where}: {line.symbol}={line.text} {error}", hint=EXAMPLE) from None


def _range(tree: Tree, symbol: str, text: str, where: str) -> Range | None:
    """None for a single value."""
    kind = _number_kind(tree, symbol)
    try:
        if kind and (match := _STEPS.fullmatch(text)):
            start, step, end = (Decimal(part) for part in match.groups())
            return Listed(symbol, text, _steps(start, step, end, whole=kind == "int"), in_order=True)
        if kind and (match := _BETWEEN.fullmatch(text)):
            low, high = Decimal(match[1]), Decimal(match[2])
            return between(symbol, text, low, high, log=bool(match[3]), whole=kind == "int")
        # A quote that nothing closes belongs to the value, and separates nothing.
        values = [unquoted(value) for value in split_values(text)] if text.count("'") % 2 == 0 else [text]
        members = tree.aliases.get(symbol, {})
        if values == [ALL] and members and ALL not in members:
            values = list(members)
        if len(values) == 1:
            return None
        if len(set(values)) < len(values):
            raise ValueError("has a value twice")
    except ValueError as error:
        raise MatrixError(f"{where}: {symbol}={text} {error}", hint=EXAMPLE) from None
    return Listed(symbol, text, values, in_order=False)


def _number_kind(tree: Tree, symbol: str) -> str:
    """`int` or `float` for a symbol whose value is one number, else empty."""
    spec = tree.value_types.get(symbol)
    if spec:
        return "" if spec.is_list else spec.item
    return "int" if tree.type_of(tree.symbol(symbol)) == "int" else ""


def _steps(start: Decimal, step: Decimal, end: Decimal, *, whole: bool) -> list[str]:
    """start, start + step … up to the end, without any rounding; ValueError says what is wrong with them."""
    if step == 0 or (end - start) / step < 0:
        raise ValueError("never reaches its end")
    # Decimals, since floats would make 0.1, 0.2, 0.30000000000000004, which is another value to the option
    # tree.
    with localcontext() as context:
        context.prec = 400
        count = int((end - start) / step) + 1
        if count > MOST_VALUES:
            raise ValueError(f"is {counted(count, 'value')}, at most {MOST_VALUES} are taken")
        numbers = [start + number * step for number in range(count)]
    if whole and any(number != int(number) for number in numbers):
        raise ValueError("has values that are not integers")
    return [str(int(number)) if whole else _decimal_text(number) for number in numbers]


def _decimal_text(number: Decimal) -> str:
    """Shortest: 0.50 is 0.5, and 0.00000001 is 1e-8."""
    with localcontext() as context:
        context.prec = 400
        shortest = number.normalize()
    return f"{shortest:f}" if -7 <= shortest.adjusted() < 16 else str(shortest).lower()


def between(symbol: str, text: str, low: Decimal, high: Decimal, *, log: bool, whole: bool) -> Between:
    """Return a range that can be searched; ValueError says what is wrong with it."""
    if low >= high:
        raise ValueError("does not rise")
    if log and low <= 0:
        raise ValueError("has no order of magnitude: it must begin above 0")
    if whole and (low != int(low) or high != int(high)):
        raise ValueError("has ends that are not integers")
    if max(abs(low), abs(high)) >= (2**63 if whole else Decimal(sys.float_info.max)):
        raise ValueError("has an end that is too large")
    if log and float(low) == 0:
        raise ValueError("begins at a number that is too small")
    return Between(symbol, text, low, high, log, whole)


def _ends(found: Range) -> Sequence[str]:
    """The values that are checked against the tree."""
    if isinstance(found, Listed):
        return found.values
    return [str(int(end)) if found.whole else _decimal_text(end) for end in (found.low, found.high)]


def whole_grid(found: Range) -> Listed:
    """A range with its values written out; MatrixError for one that has too many of them."""
    if isinstance(found, Listed):
        return found
    if not found.whole or found.log:
        raise MatrixError(
            f"{found.symbol}={found.text} has no grid",
            hint=typed_setting(
                "write a|b or start:step:end, or search: CONFIG_SWEEP_METHOD=random or tpe",
                "give its values, or search it: --method random, or tpe",
            ),
        )
    low, high = int(found.low), int(found.high)
    if (count := high - low + 1) > MOST_VALUES:  # `len` of a range holds no more than 63 bits
        raise MatrixError(
            f"{found.symbol}={found.text} is {count} values", hint=f"at most {MOST_VALUES} are taken"
        )
    numbers = range(low, high + 1)
    return Listed(found.symbol, found.text, [str(number) for number in numbers], in_order=True)
