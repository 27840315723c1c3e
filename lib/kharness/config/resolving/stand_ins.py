"""Symbols without a prompt, which nobody sets, and the ints among them that stand for another symbol."""

from __future__ import annotations

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
