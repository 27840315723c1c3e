"""Symbols without a prompt, which nobody sets: aliases of choices, and ints that stand for another symbol."""

from __future__ import annotations

from kharness.config.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any


def has_prompt(symbol: Any) -> bool:
    """Whether people set a symbol of kconfiglib; without a prompt it only follows others."""
    return any(node.prompt for node in symbol.nodes)


def stand_in(symbol: Any, kconf: Any, lib: Any) -> tuple[str, str] | None:
    """Return what a symbol stands for: (CHECKPOINT_EVERY, CHECKPOINT_UNIT_STEPS); None if for none.

    The second is the member of a choice that its default depends on, empty where there is none. `lib` is the
    module kconfiglib.
    """
    if symbol.orig_type is not lib.INT or has_prompt(symbol):
        return None
    followed, condition = symbol.nodes[0].orig_defaults[0]
    return (followed.name, "" if condition is kconf.y else condition.name)


def read_alias(symbol: Any, lib: Any) -> dict[str, str]:
    """{value: member} for a symbol that only says which member of a choice is set, else nothing.

    ConfigError for a value that two members make.
    """
    members: dict[str, str] = {}
    if symbol.orig_type is not lib.STRING or has_prompt(symbol):
        return {}
    for node in symbol.nodes:
        choices = set()
        for default, condition in node.orig_defaults:
            if not (default.is_constant and isinstance(condition, lib.Symbol) and condition.choice):
                return {}
            if members.setdefault(default.str_value, condition.name) != condition.name:
                place = place_of(symbol.nodes[0])
                raise ConfigError(f"{place}: two members make {symbol.name} {default.name}")
            choices.add(condition.choice)
        if len(choices) > 1:
            return {}
    return members


def place_of(node: Any) -> str:
    """Return where an entry stands: `lenet5/Kconfig:33`."""
    return f"{node.filename}:{node.linenr}"
