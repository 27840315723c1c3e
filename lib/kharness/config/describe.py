"""The option tree, described for documentation, help texts and questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kharness.config.affects import WORDS, without_lines
from kharness.config.tree import Tree
from kharness.config.values import ValueType


@dataclass(frozen=True)
class Option:
    """One symbol of the tree."""

    name: str
    type: str
    """`bool`, `int`, `hex` or `string`."""
    prompt: str
    """Empty for a symbol that only follows others."""
    help: str
    """Help text in Kconfig; for the alias of a choice, that of the choice."""
    menu: tuple[str, ...]
    """Titles of the menus around it, outermost first."""
    where: str
    """`lenet5/Kconfig:33`."""
    value_type: ValueType | None
    ranges: tuple[tuple[str, str, str], ...]
    """(low, high, condition): the first whose condition holds counts, an empty one always holds."""
    defaults: tuple[tuple[str, str], ...]
    """(value, condition): the first whose condition holds counts, an empty one always holds."""
    depends: str
    """Condition under which the symbol is visible; empty if it always is."""
    choice: str
    """Prompt of the choice that it is a member or the alias of; of one per model each with its condition."""
    members: Mapping[str, str]
    """For the alias of a choice, its values and what they set: {"adamw": "OPTIMIZER_ADAMW"}."""
    affects: frozenset[str]
    """Words of kharness.config.affects."""

    @property
    def explanation(self) -> str:
        """Prompt and help as one paragraph, without the lines `Affects:` and `Value:`."""
        title = self.prompt or self.choice
        return f"{title}. {without_lines(self.help)}".strip() if title else without_lines(self.help)

    @property
    def type_text(self) -> str:
        """The type in words: `int, 1 to 65536`, `float, 0 < x`, `one of adam, adamw, sgd`."""
        if self.members:
            return f"one of {', '.join(self.members)}"
        if self.value_type:
            return self.value_type.text
        ranges = [f"{low} to {high}" + (f" if {when}" if when else "") for low, high, when in self.ranges]
        return ", ".join([self.type, *ranges])

    @property
    def affects_text(self) -> str:
        """`results, speed`."""
        return ", ".join(word for word in WORDS if word in self.affects)

    @property
    def default_text(self) -> str:
        """The defaults in words: `0.1 if OPTIMIZER_SGD, else 0.003`."""
        texts = [f"{value} if {when}" if when else value for value, when in self.defaults]
        return ", else ".join(texts)


def options(tree: Tree, *, choices_here: bool = False) -> list[Option]:
    """Every symbol, in the order of the menus; with `choices_here` a choice as this configuration has it."""
    return [
        _option(tree, symbol, here=choices_here and symbol.name in tree.aliases)
        for symbol in tree.kconf.unique_defined_syms
    ]


def option(tree: Tree, name: str) -> Option:
    """One symbol as it is in this configuration; its name with or without CONFIG_.

    What another model has of it is left out. ConfigError with the nearest known names if it is unknown.
    """
    return _option(tree, tree.symbol(name.removeprefix("CONFIG_")), here=True)


def _option(tree: Tree, symbol: Any, *, here: bool = False) -> Option:
    places = [n for n in symbol.nodes if here and tree.holds(n.dep)] or symbol.nodes
    node = next((n for n in places if n.prompt), places[0])
    members = tree.aliases.get(symbol.name, {})
    if here:
        reached = {
            value: m for value, m in members.items() if tree.holds(tree.kconf.syms[m].choice.direct_dep)
        }
        members = reached or members
    # a choice of each model may have this alias
    of_members = dict.fromkeys(tree.kconf.syms[member].choice for member in members.values())
    choices: list[Any] = [symbol.choice] if symbol.choice else [*of_members]
    choice_nodes: list[Any] = [next((n for n in one.nodes if n.help), one.nodes[0]) for one in choices]
    when = [tree.condition(n.dep) if len(choices) > 1 else "" for n in choice_nodes]
    if members:
        value_of = {member: value for value, member in members.items()}
        defaults = [
            (value, " && ".join(filter(None, (condition, own))))
            for condition, one in zip(when, choices, strict=True)
            for value, own in _defaults_of_choice(tree, one, value_of)
        ]
    else:
        # An entry without a prompt adds defaults to the one that has it.
        adding = [n for n in symbol.nodes if n is node or not n.prompt]
        found = [(_default(tree, value), c) for n in adding for value, c in n.orig_defaults]
        if tree.type_of(symbol) == "bool" and not symbol.choice:
            found.append(("n", tree.kconf.y))
        defaults = [(value, tree.condition(c)) for value, c in found]
    prompts = zip((n.prompt[0] for n in choice_nodes), when, strict=True)
    return Option(
        name=symbol.name,
        type=tree.type_of(symbol),
        prompt=node.prompt[0] if node.prompt else "",
        help=(choice_nodes[0].help if members else node.help) or "",
        menu=_menu_path(node),
        where=f"{node.filename}:{node.linenr}" if here else tree.place(symbol),
        value_type=tree.value_types.get(symbol.name),
        ranges=tuple((low.str_value, high.str_value, tree.condition(c)) for low, high, c in node.orig_ranges),
        defaults=_until_unconditional(defaults),
        depends=tree.condition(node.dep) if len(choices) < 2 else "",
        choice=", or ".join(
            f"{prompt} if {condition}" if condition else prompt for prompt, condition in prompts
        ),
        members=members,
        affects=tree.affects.of(symbol.name),
    )


def _defaults_of_choice(tree: Tree, choice: Any, value_of: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return its defaults; one none of which holds takes its first member (kconfig-language.rst)."""
    defaults = [(d, c) for n in choice.nodes for d, c in n.orig_defaults]
    of_values = [
        (value_of[d.name], tree.condition(c)) for d, c in [*defaults, (choice.syms[0], tree.kconf.y)]
    ]
    return _until_unconditional(of_values)


def _until_unconditional(defaults: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The defaults that can take effect: none after the first that always holds."""
    effective = []
    for value, condition in defaults:
        effective.append((value, condition))
        if not condition:
            break
    return tuple(effective)


def _default(tree: Tree, value: Any) -> str:
    if value.__class__.__name__ != "Symbol" or not value.is_constant:
        return tree.condition(value)
    return str(value.str_value) or '""'


def _menu_path(node: Any) -> tuple[str, ...]:
    path: list[str] = []
    while node.parent.parent:
        node = node.parent
        if node.item.__class__.__name__ not in ("Choice", "Symbol"):  # not below what it depends on
            path.insert(0, node.prompt[0])
    return tuple(path)
