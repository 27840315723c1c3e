"""`make oldconfig` and its list forms: the symbols that a `.config` does not mention yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kharness.config import dotconfig
from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.describe import Option, options
from kharness.config.errors import ConfigError
from kharness.config.tree import CONFIG, Tree

ORIGIN = Origin("oldconfig")


def new_options(tree: Tree, mentioned: set[str]) -> list[Option]:
    """Return the options that the last `resolve` made visible and the file does not mention; a choice as its
    alias.
    """
    return [
        option
        for option in options(tree)
        if _asks(tree, option) and not ({option.name, *option.members.values()} & mentioned)
    ]


def mentioned_symbols(directory: Path) -> set[str]:
    """Every symbol that a directory's `.config` sets or unsets; none if there is no such file."""
    path = directory / CONFIG
    if not path.exists():
        return set()
    return {line.symbol for line in dotconfig.parse_lines(dotconfig.read_text(path, str(path)), str(path))}


def ask(
    tree: Tree, layers: Sequence[Layer], mentioned: Iterable[str], read_line: Callable[[str], str]
) -> Layer:
    """Put each new symbol to the user, until the answers bring no more into reach.

    An empty answer takes the default, `?` shows the help. ConfigError when the answers end too early.
    """
    answers: list[Assignment] = []
    seen = set(mentioned)
    tree.resolve(*layers)
    while new := new_options(tree, seen):
        option = new[0]
        seen.update({option.name, *option.members.values()})
        answers.extend(_answer(tree, option, [*layers, answers], read_line))
        tree.resolve(*layers, answers)
    return answers


def _asks(tree: Tree, option: Option) -> bool:
    if option.members:
        return any(tree.reachable(member) for member in option.members.values())
    by_alias = any(option.name in members.values() for members in tree.aliases.values())
    return bool(option.prompt) and not by_alias and tree.reachable(option.name)


def _answer(tree: Tree, option: Option, before: Sequence[Layer], read_line: Callable[[str], str]) -> Layer:
    """One question, put again until its answer can be taken on top of the layers before."""
    default = tree.current(option.name)
    while True:
        try:
            answer = read_line(f"{option.prompt or option.choice} ({option.name}) [{default}] ").strip()
        except EOFError:
            print()
            raise ConfigError(
                f"{option.name} got no answer",
                hint="`make olddefconfig` takes the default of every new symbol",
            ) from None
        if not answer:
            return []
        if answer == "?":
            print(f"{option.explanation}\n{option.type_text}; default {option.default_text}")
            continue
        try:
            layer = tree.assignments(option.name, answer, ORIGIN)
            tree.resolve(*before, layer)
        except ConfigError as error:
            print(f"{error}; {error.hint}")
            continue
        return layer
