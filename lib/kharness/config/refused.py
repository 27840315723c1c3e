"""Refused values: collect several in one error, fixable in one go, with the names that were probably
meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.errors import ConfigError
from kharness.config.output import printable

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any, Protocol

    from kharness.config.affects import Affects

    class TakesValues(Protocol):
        """The part of the option tree that knows which values it takes."""

        aliases: dict[str, dict[str, str]]

        @property
        def affects(self) -> Affects: ...

        def assignments(self, name: str, value: str, origin: Origin) -> Layer: ...

        def reachable(self, name: str, /) -> bool: ...


RENAMED = {"LAUNCHER_LOCAL_ZYGOTE": "LAUNCHER_LOCAL_FORK_SERVER"}
"""Earlier names of symbols: refused, in `.config` and fragments too, with the new name as hint."""

ALIASES = {
    "AXES": "MATRIX_AXES",
    "BATCH": "BATCH_SIZE",
    "EPOCHS": "NUM_EPOCHS",
    "LR": "LEARNING_RATE",
    "SEEDS": "SEED",
    "STEPS": "MAX_STEPS",
    "THREADS": "NUM_THREADS",
}
"""Common names for symbols; a hint gives the symbol."""

ALL = "all"
"""Stands for every member of a choice where a matrix takes several values."""

RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})", re.ASCII)

_AS_NEAR = 0.15
_BEGINNING = 3
"""Characters of a beginning that names something: `gp` is in too many."""


def together(errors: Sequence[ConfigError]) -> ConfigError:
    """One error for all, each with its own hint; a single one as it is."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    return ConfigError("\n  ".join([f"{len(errors)} values are refused", *lines]), hint="change all of them")


def collect(
    parts: Iterable[Callable[[], Layer]], also: Callable[[Layer], Sequence[ConfigError]]
) -> list[Assignment]:
    """Return the assignments of all parts; raise ConfigError with every part's error and those `also` finds
    in the rest.
    """
    layer: list[Assignment] = []
    refused: list[ConfigError] = []
    for part in parts:
        try:
            layer.extend(part())
        except ConfigError as error:
            refused.append(error)
    if refused:
        raise together([*refused, *also(layer)])
    return layer


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names, the nearest first; of those that are much less alike than it, none.

    Where none is alike, those that begin with it, the shortest first.
    """
    from difflib import SequenceMatcher, get_close_matches  # only a call that fails pays for the import

    names = list(known)
    near = get_close_matches(name, names, n=3)
    if not near and len(name) >= _BEGINNING:
        return sorted((one for one in names if one.startswith(name)), key=len)[:3]
    alike = [SequenceMatcher(None, one, name).ratio() for one in near]
    return [one for one, ratio in zip(near, alike, strict=True) if ratio >= alike[0] - _AS_NEAR]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a hint; empty where no known name is near."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


def why_without_effect(
    lib: Any, symbol: Any, active_range: tuple[str, str], tree: TakesValues
) -> tuple[str, str]:
    """(why the value requested for kconfiglib's symbol did not take, what to do about it)."""
    remove = "or remove this assignment"
    if symbol.visibility:
        if symbol.choice and symbol.choice.selection is not symbol:
            return f"has no effect: {symbol.choice.selection.name}=y is chosen", "keep one of them"
        if symbol.choice:
            return "has no effect: no other member of its choice is set", "set the member you want to y"
        low, high = active_range
        if low:
            return f"is outside {low}..{high}", f"give a value from {low} to {high}"
        selecting = lib.expr_str(symbol.rev_dep)
        return f"has no effect: it is selected by {selecting}", f"unset {selecting}, {remove}"
    needs, remedy = unmet(lib, symbol)
    if symbol.choice and not symbol.choice.visibility and (others := _instead(tree, symbol.name)):
        return f"has no effect: {needs}", f"here {others}"
    return f"has no effect: {needs}", f"{remedy}, {remove}" if remedy else "remove this assignment"


def _instead(tree: TakesValues, name: str) -> str:
    """`DATASET is one of …`: the members that can be chosen where `name`, of another choice, cannot."""
    for alias, members in tree.aliases.items():
        within = [value for value, member in members.items() if tree.reachable(member)]
        if within and name in members.values():
            return f"{alias} is one of {', '.join(within)}"
    return ""


def _terms(lib: Any, condition: Any) -> Iterator[Any]:
    """Yield the terms a condition requires; for a choice, those of the choice."""
    for term in lib.split_expr(condition, lib.AND):
        if isinstance(term, lib.Choice):
            yield from _terms(lib, term.direct_dep)
        else:
            yield term


def unmet(lib: Any, symbol: Any) -> tuple[str, str]:
    """(the conditions that keep kconfiglib's symbol out of reach, how to meet them)."""
    needs, remedies = [], []
    for node in symbol.nodes:
        for term in _terms(lib, node.prompt[1]) if node.prompt else []:
            if lib.expr_value(term):
                continue
            negated = isinstance(term, tuple) and term[0] is lib.NOT
            selecting = _selectors(lib, term[1] if negated else term)
            if selecting:
                chosen = [one.name for one in selecting if one.str_value == "y" or not negated]
                needs.append(f"{chosen[0]}=n, which is y" if negated else " || ".join(chosen))
                if choice := selecting[0].choice:
                    remedies.append(f"another member of the choice '{choice.nodes[0].prompt[0]}'")
            elif isinstance(term, lib.Symbol):
                needs.append(f"{term.name}=y, which is n")
                remedies.append(f"CONFIG_{term.name}=y")
            elif negated and isinstance(term[1], lib.Symbol):
                needs.append(f"{term[1].name}=n, which is y")
                choice = term[1].choice
                other = f"another member of the choice '{choice.nodes[0].prompt[0]}'" if choice else ""
                remedies.append(other or f"CONFIG_{term[1].name}=n")
            else:
                needs.append(lib.expr_str(term))
    if not needs:
        return "it only follows other symbols", ""
    remedy = f"set {' and '.join(dict.fromkeys(remedies))}" if remedies else ""
    return f"needs {' and '.join(dict.fromkeys(needs))}", remedy


def _selectors(lib: Any, symbol: Any) -> list[Any]:
    """The symbols that people set and that select this one, which has no prompt; else nothing."""
    if not isinstance(symbol, lib.Symbol) or any(node.prompt for node in symbol.nodes):
        return []
    selecting = [
        item
        for item in lib.expr_items(symbol.rev_dep)
        if isinstance(item, lib.Symbol) and any(target is symbol for target, _ in item.selects)
    ]
    found = [one for item in selecting for one in (_selectors(lib, item) or [item])]
    return sorted(dict.fromkeys(found), key=lambda one: str(one.name))


def but_for_case(value: str, known: Iterable[str]) -> str | None:
    """The known name that a value is, apart from upper and lower case."""
    return next((name for name in known if name.lower() == value.lower()), None)


def several(
    tree: TakesValues, name: str, value: str, *, enough: Callable[[Iterable[object]], bool] = any
) -> list[str]:
    """The values that a text means which is no single one: `1,2`, `0.1|0.01`, `1..5`, `all`.

    Nothing for a text that the symbol takes as it is, and for one of which it does not take `enough` parts.
    """

    def is_taken(text: str) -> bool:
        try:
            tree.assignments(name, text, Origin("make variable"))
        except ConfigError:
            return False
        return True

    has_all = name in tree.aliases
    parts = [part.strip() for part in re.split(r"\|" if name == "TRACKER" else r"[,|]", value)]
    ranges = map(RANGE.fullmatch, parts)
    ends = [end for part, ab in zip(parts, ranges, strict=True) for end in (ab.groups() if ab else [part])]
    if is_taken(value) or (len(ends) == 1 and not (has_all and value == ALL)):
        return []
    return parts if enough((has_all and end == ALL) or is_taken(end) for end in ends) else []


def one_value(tree: TakesValues, name: str, value: str, origin: Origin, *, also: str = "") -> Layer:
    """`tree.assignments`; where several values stand for one, the hint names the matrix that is meant.

    `also` is what that matrix has on its line besides.
    """
    try:
        return tree.assignments(name, value, origin)
    except ConfigError as error:
        from shlex import quote

        symbol = name.removeprefix("CONFIG_")
        if tree.affects.touches(symbol, "matrix") or not several(tree, symbol, value, enough=all):
            raise
        meant = f"make test_matrix {also}{symbol}={quote(printable(value))}"
        raise ConfigError(str(error), hint=f"a matrix trains with each: {meant}") from None
