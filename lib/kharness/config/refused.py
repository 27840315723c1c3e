"""What was refused: several values in one error, fixed in one go, and the names that were probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kharness.config.assignment import Assignment, Layer
from kharness.config.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any

RENAMED = {"MATRIX_ZYGOTE": "LAUNCHER_LOCAL_ZYGOTE"}
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
"""What people call symbols; a hint names the symbol."""

_AS_NEAR = 0.15


def together(errors: Sequence[ConfigError]) -> ConfigError:
    """One error for all, each with its own hint; a single one as it is."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error) + (f" ({error.hint})" if error.hint else "") for error in errors]
    return ConfigError("\n  ".join([f"{len(errors)} values are refused", *lines]), hint="change all of them")


def collect(
    parts: Iterable[Callable[[], Layer]], also: Callable[[Layer], Sequence[ConfigError]]
) -> list[Assignment]:
    """What all parts give; ConfigError for every one that raises, and for what `also` finds in the others."""
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
    """At most three known names, the nearest first; of those that are much less alike than it, none."""
    from difflib import SequenceMatcher, get_close_matches  # only a call that fails pays for the import

    near = get_close_matches(name, list(known), n=3)
    alike = [SequenceMatcher(None, one, name).ratio() for one in near]
    return [one for one, ratio in zip(near, alike, strict=True) if ratio >= alike[0] - _AS_NEAR]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a hint; empty where no known name is near."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


def why_without_effect(lib: Any, symbol: Any, active_range: tuple[str, str]) -> tuple[str, str]:
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
    return f"has no effect: {needs}", f"{remedy}, {remove}" if remedy else "remove this assignment"


def unmet(lib: Any, symbol: Any) -> tuple[str, str]:
    """(the conditions that keep kconfiglib's symbol out of reach, how to meet them)."""
    needs, remedies = [], []
    for node in symbol.nodes:
        for term in lib.split_expr(node.prompt[1], lib.AND) if node.prompt else []:
            if lib.expr_value(term):
                continue
            if isinstance(term, lib.Symbol):
                needs.append(f"{term.name}=y, which is n")
                remedies.append(f"CONFIG_{term.name}=y")
            elif isinstance(term, tuple) and term[0] is lib.NOT and isinstance(term[1], lib.Symbol):
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
