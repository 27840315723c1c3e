"""Each symbol's Kconfig help is the only place that says what the symbol affects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kharness.config.affects import UNKNOWN, Affects, read_line
from kharness.config.errors import ConfigError
from kharness.config.tree import Tree


@pytest.mark.parametrize("folder", [".", "tests/data/checkout"])
def test_every_symbol_of_every_kconfig_file_says_what_it_affects(root: Path, folder: str) -> None:
    tree = Tree.load(root / folder)
    symbols = [symbol.name for symbol in tree.kconf.unique_defined_syms]
    assert len(symbols) > 40
    assert [name for name in symbols if name not in tree.affects.words] == [], (
        "no `Affects:` line in its help"
    )


def test_a_choice_says_it_for_its_symbol_and_members(tree: Tree) -> None:
    device = {"results", "speed", "machine"}
    found = [tree.affects.of(name) for name in ("DEVICE", "DEVICE_CPU", "SEED", "GONE_BY_NOW")]
    assert found == [device, device, {"results"}, UNKNOWN]
    assert tree.affects.names(["DEVICE", "DEVICE_CPU", "SEED"], "speed", "machine") == ["DEVICE"]
    assert tree.affects.touches("DEVICE", "matrix", "speed")
    assert not tree.affects.touches("DEVICE", "matrix", "reporting")


def test_a_bool_that_nobody_sets_is_left_to_what_sets_it(make_tree: Callable[[str], Tree]) -> None:
    text = 'config A\n\tbool "a"\n\tselect FACT\n\thelp\n\t  Affects: results\n\nconfig FACT\n\tbool\n'
    affects = make_tree(f"{text}\thelp\n\t  Affects: reporting\n").affects
    assert affects.names(["A", "FACT"], "results", "reporting") == ["A"]


def test_an_unknown_word_is_refused_with_its_place(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree('config A\n\tint "a"\n\tdefault 1\n\thelp\n\t  Text.\n\t  Affects: results, sped\n')
    with pytest.raises(ConfigError) as caught:
        _ = tree.affects
    assert str(caught.value) == (
        "Kconfig:2: A: 'Affects: sped' is none of results, speed, reporting, machine, matrix"
    )


@pytest.mark.parametrize("line", ["", "\t  Affects: matrix\n", "\t  Affects: machine\n"])
def test_an_option_of_a_launcher_that_would_not_reach_it_is_refused(
    make_tree: Callable[[str], Tree], line: str
) -> None:
    tree = make_tree(f'config LAUNCHER_QUEUE_NAME\n\tstring "name"\n\thelp\n\t  Text.\n{line}')
    with pytest.raises(ConfigError) as caught:
        _ = tree.affects
    assert (str(caught.value), caught.value.hint) == (
        "Kconfig:2: LAUNCHER_QUEUE_NAME: an option of a launcher needs 'Affects: machine, matrix'",
        "fix the Kconfig file",
    )


def test_a_help_without_the_line_says_nothing() -> None:
    assert read_line(None) is None
    assert read_line("Some text.\nValue: float\n") is None


def test_the_groups_of_config_py_give_back_the_same(tree: Tree) -> None:
    assert Affects.from_groups(tree.affects.groups) == tree.affects


# What a target of make reads of its command line is another question, asked before kconfiglib is installed.
NO_SECOND_LIST = {"lib/kharness/config/make/known_variables.py"}


def collected(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every text in a list, a tuple or a set of a module."""
    for node in nodes:
        for one in node.elts if isinstance(node, (ast.List, ast.Set, ast.Tuple)) else []:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.lineno, one.value


def test_nothing_else_lists_symbols_by_how_they_begin(
    root: Path, nodes: Callable[[Path], list[ast.AST]]
) -> None:
    """Whether an option matters for something is read from its `Affects:` line."""
    symbols = [symbol.name for symbol in Tree.load(root).kconf.unique_defined_syms]
    paths = [*root.glob("lib/**/*.py"), *root.glob("scripts/*.py"), *root.glob("*/train.py")]
    assert len(paths) > 200
    found = [
        f"{path.relative_to(root)}:{line}: {text}"
        for path in paths
        if str(path.relative_to(root)) not in NO_SECOND_LIST
        for line, text in collected(nodes(path))
        if text.endswith("_") and any(name.startswith(text) for name in symbols)
    ]
    assert found == []
