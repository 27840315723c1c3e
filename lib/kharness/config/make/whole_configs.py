"""Configurations made by rule: everything on, everything off, everything at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.tree import Tree
from kharness.config.values import ValueType


def all_bools(tree: Tree, value: str, origin: Origin) -> Layer:
    """Every bool that can be `value` (y or n); choices keep their default member, as C conf does."""
    return _visit(tree, origin, lambda symbol: None if symbol.choice or not _is_bool(tree, symbol) else value)


def random_values(tree: Tree, random: Random, origin: Origin) -> Layer:
    """A random member of each choice, random bools, and random numbers within range or `Value:` type."""
    picked: dict[Any, Any] = {}

    def pick(symbol: Any) -> str | None:
        if symbol.choice:
            if symbol.choice not in picked:
                picked[symbol.choice] = random.choice([s for s in symbol.choice.syms if s.visibility])
            return "y" if picked[symbol.choice] is symbol else None
        if _is_bool(tree, symbol):
            return random.choice("yn")
        if spec := tree.value_types.get(symbol.name):
            return _random_text(spec, random)
        low, high = tree.active_range(symbol)
        return str(random.randint(int(low), int(high))) if low else None

    return _visit(tree, origin, pick)


def _visit(tree: Tree, origin: Origin, pick: Callable[[Any], str | None]) -> Layer:
    """Ask `pick` once for each symbol within reach, until what it said brings no more into reach."""
    tree.restore([])
    said: dict[str, str | None] = {}
    waiting = True
    while waiting:
        waiting = False
        for symbol in tree.kconf.unique_defined_syms:
            if symbol.name not in said and symbol.visibility:
                waiting = True
                said[symbol.name] = value = pick(symbol)
                if value is not None:
                    symbol.set_value(value)
    return [Assignment(name, value, origin) for name, value in tree.set_by_user()]


def _is_bool(tree: Tree, symbol: Any) -> bool:
    return tree.type_of(symbol) == "bool"


def _random_text(spec: ValueType, random: Random) -> str:
    count = (spec.count or random.randint(1, 3)) if spec.is_list else 1
    return " ".join(_random_number(spec, random) for _ in range(count))


def _random_number(spec: ValueType, random: Random) -> str:
    """A number within the bounds: even between two of them, log-uniform beyond a single one."""
    low = max((bound for symbol, bound in spec.bounds if symbol in (">", ">=")), default=None)
    high = min((bound for symbol, bound in spec.bounds if symbol in ("<", "<=")), default=None)
    while True:
        step = 10 ** random.uniform(-6, 1)
        if low is not None and high is not None:
            number = random.uniform(low, high)
        elif high is not None:
            number = high - step
        else:
            number = (low or 0) + step
        text = str(round(number)) if spec.item == "int" else f"{number:.6g}"
        try:
            spec.parse_item(text)
        except ValueError:
            continue  # rounding met an open bound
        return text
