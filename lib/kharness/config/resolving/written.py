"""The configuration that a tree has, as the text of a `.config`."""

from __future__ import annotations

from collections.abc import Iterable

from kharness.config.dotconfig import HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import Any


def config_text(kconf: Any, nodes: Iterable[tuple[Any, bool]], lib: Any) -> str:
    """The `.config` as C conf writes it (kconfiglib's own writer adds `# end of` lines).

    `nodes` are those of the menu in their order, and which of them are symbols; `lib` is kconfiglib.
    """
    chunks = [f"#\n# {HEADER}\n# {kconf.mainmenu_text}\n#\n"]
    for node, is_symbol in nodes:
        if is_symbol:
            chunks.append(node.item.config_string)
        elif _heads_section(node, lib):
            chunks.append(f"\n#\n# {node.prompt[0]}\n#\n")
    return "".join(chunks)


def _heads_section(node: Any, lib: Any) -> bool:
    if not lib.expr_value(node.dep):
        return False
    is_menu = node.item is lib.MENU and lib.expr_value(node.visibility)
    return bool(is_menu or node.item is lib.COMMENT)
