"""The types that Kconfig lacks: floats and lists, from the `Value:` line that ends an option's help.

    Value: float, 0 < x <= 1
    Value: list of 2 floats, 0 <= x < 1
    Value: list of ints, x >= 1

The values of a list are separated by spaces.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kharness.config.dotconfig import check_storable
from kharness.config.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any

Number = int | float
Value = bool | int | float | str | list[int] | list[float]

INT = re.compile(r"-?[0-9]+", re.ASCII)
FLOAT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
HEX = re.compile(r"(0[xX])?[0-9a-fA-F]{1,16}", re.ASCII)
HINTS = {
    "bool": "y or n",
    "int": "an integer",
    "hex": "a hex number such as 0x1f",
    "string": "a line of text",
}
_SPEC = re.compile(
    r"(?:list of (?:(?P<count>[0-9]+) )?(?P<items>float|int)s|(?P<one>float|int))(?:, *(?P<where>.+))?"
)
_COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class ValueType:
    """The type in a `Value:` line."""

    text: str
    """The line without `Value:`, as the user reads it in the help."""
    item: str
    """`int` or `float`."""
    is_list: bool
    count: int | None
    """Length of the list; None where any length will do."""
    bounds: tuple[tuple[str, float], ...]
    """Comparisons with x on the left: ((">", 0.0), ("<=", 1.0))."""

    def parse(self, text: str) -> int | float | list[int] | list[float]:
        """The typed value; ValueError says why not, as the end of a sentence ("is not a float")."""
        if not self.is_list:
            return self.parse_item(text)
        words = text.split()
        if self.count is not None and len(words) != self.count:
            raise ValueError(f"has {len(words)} of {self.count} values")
        numbers = [self._number(word, text) for word in words]
        return [int(n) for n in numbers] if self.item == "int" else [float(n) for n in numbers]

    def parse_item(self, text: str) -> Number:
        """One number of the type; ValueError says why not."""
        return self._number(text, text)

    def _number(self, word: str, whole: str) -> Number:
        number: Number
        prefix = "" if word == whole else f"has {word!r}, which "
        if self.item == "int":
            if not INT.fullmatch(word):
                raise ValueError(f"{prefix}is not an int")
            number = parse_int(word)
        else:
            if not FLOAT.fullmatch(word):
                raise ValueError(f"{prefix}is not a float")
            number = float(word)
            if not math.isfinite(number):
                raise ValueError(f"{prefix}is too large for a float")
        for symbol, bound in self.bounds:
            if not _COMPARE[symbol](number, bound):
                raise ValueError(f"{prefix}is outside {self.text.partition(', ')[2]}")
        return number


def read_value_type(symbol: Any) -> ValueType | None:
    """The type that kconfiglib's symbol has by its help; ConfigError names the line that cannot be read."""
    for node in symbol.nodes:
        try:
            found = value_type(node.help)
        except ValueError as error:
            raise ConfigError(f"{node.filename}:{node.linenr}: {symbol.name}: {error}") from None
        if found:
            return found
    return None


def value_type(help_text: str | None) -> ValueType | None:
    """The type that the last line of an option's help gives, None without a `Value:` line.

    ValueError if the line is there and cannot be read.
    """
    last = (help_text or "").rstrip().rpartition("\n")[2].strip()
    if not last.startswith("Value:"):
        return None
    text = last.removeprefix("Value:").strip()
    match = _SPEC.fullmatch(text)
    if not match:
        raise ValueError(f"cannot read 'Value: {text}'")
    count = match["count"]
    return ValueType(
        text=text,
        item=match["items"] or match["one"],
        is_list=match["items"] is not None,
        count=int(count) if count else None,
        bounds=_bounds(match["where"]) if match["where"] else (),
    )


def canonical(kind: str, text: str, spec: ValueType | None) -> str:
    """The text as `.config` holds it (007 becomes 7); ValueError says why the type cannot hold it."""
    if kind == "bool" and text not in ("y", "n"):
        raise ValueError("is not a bool")
    if kind == "int":
        return str(parse_int(text))
    if kind == "string":
        check_storable(text)
    typed(kind, text, spec)
    return text


def typed(kind: str, text: str, spec: ValueType | None) -> Value:
    """The Python value of Kconfig text; ValueError says why the type cannot hold it."""
    if kind == "bool":
        return text == "y"
    if kind == "int":
        return parse_int(text)
    if kind == "hex":
        if not HEX.fullmatch(text):
            raise ValueError("is not a hex number")
        return int(text, 16)
    return spec.parse(text) if spec else text


def parse_int(text: str) -> int:
    """The int that Kconfig text means (`007` is 7); ValueError if it is none, or more than 64 bits."""
    # The length check comes first: Python refuses to convert thousands of digits with an error of its own.
    if not INT.fullmatch(text):
        raise ValueError("is not an int")
    if len(text.lstrip("-0")) > 19 or not -(2**63) <= int(text) < 2**63:
        raise ValueError("does not fit in 64 bits")
    return int(text)


def whole(values: Mapping[str, object], name: str, default: int = 0) -> int:
    """The int that an option has among some values; `default` where it has none."""
    value = values.get(name)
    return value if isinstance(value, int) else default


def _bounds(where: str) -> tuple[tuple[str, float], ...]:
    """`0 < x <= 1` as comparisons with x on the left."""
    words = re.split(r"\s*(<=|>=|<|>)\s*", where.strip())
    try:
        if words[0] == "x":
            (_, symbol, bound) = words
            return ((symbol, float(bound)),)
        if words[2] != "x" or len(words) not in (3, 5):
            raise ValueError(where)
        left = ((_MIRROR[words[1]], float(words[0])),)
        return (*left, (words[3], float(words[4]))) if len(words) == 5 else left
    except (ValueError, IndexError):
        raise ValueError(f"cannot read the range '{where}'") from None
