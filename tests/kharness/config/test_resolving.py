"""An outcome that is made from a known one is the one that is computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import kconfiglib
import pytest

from kharness.config.assignment import Layer, Origin, Resolved
from kharness.config.errors import ConfigError
from kharness.config.record import Record, make_record
from kharness.config.resolving import config_text, free_symbols
from kharness.config.tree import Tree

KCONFIG = """
config SEED
	int "Seed"
	range 1 9 if STRICT
	default 1

config STRICT
	bool "Strict"
	default y

config LABEL
	string "Label"
	default "run"

config MAXIMUM
	int "Maximum"
	default 5

config BOUNDED
	int "Bounded"
	range 0 MAXIMUM
	default 2

config COPIED
	string "Copied"

config COPY
	string
	default COPIED

config SAID
	int "Said"
	default 1

config SHOWN
	int "Shown"
	default 1

comment "said"
	depends on SAID > 3

menu "empty"
	visible if SHOWN > 3
endmenu

config DETAIL
	string "Detail"
	default "a"
	depends on STRICT

config ODD
	string "Odd"
"""


def layer(tree: Tree, words: str) -> Layer:
    """`SEED=2 STRICT=n` as assignments."""
    found: list[Layer] = []
    for word in words.split():
        name, value = word.split("=", 1)
        found.append(tree.assignments(name, value.replace("␣", " "), Origin("flag", word)))
    return [assignment for part in found for assignment in part]


def outcome(tree: Tree, words: str) -> tuple[Resolved | str, Record | None, str, dict[str, str]]:
    """Result or refusal of resolving the words, its record and lines, and the values left in the tree."""
    given: Resolved | str
    try:
        given = tree.resolve(*(layer(tree, part) for part in words.split("|")))
    except ConfigError as error:
        given = f"{error}; {error.hint}"
    record, lines = None, ""
    if isinstance(given, Resolved):
        record, lines = make_record(given), "\n".join(given.literals.values())
    texts = {symbol.name: tree.current(symbol.name) for symbol in tree.kconf.unique_defined_syms}
    return given, record, lines, texts


def test_only_what_nothing_depends_on_is_free(make_tree: Callable[[str], Tree]) -> None:
    kconf = make_tree(KCONFIG).kconf
    assert free_symbols(kconf, kconfiglib) == {"SEED", "LABEL", "BOUNDED", "DETAIL", "ODD"}


@pytest.mark.parametrize(
    "requests",
    [
        "SEED=2,SEED=3,SEED=1,SEED=2",
        "SEED=1,SEED=2",
        "LABEL=a SEED=2,LABEL=run SEED=2,LABEL=run SEED=1,SEED=1",
        "SEED=4,SEED=12,SEED=5",
        "STRICT=n SEED=12,SEED=12,STRICT=n SEED=13",
        "MAXIMUM=5 BOUNDED=3,MAXIMUM=5 BOUNDED=9,MAXIMUM=9 BOUNDED=9,MAXIMUM=9 BOUNDED=0",
        "SAID=1 SEED=2,SAID=9 SEED=2,SAID=9 SEED=3",
        "SHOWN=1 SEED=2,SHOWN=9 SEED=2",
        "DETAIL=b|SEED=2,DETAIL=c|SEED=2,DETAIL=c STRICT=n|SEED=2,DETAIL=c|STRICT=n,DETAIL=d|STRICT=n",
        'ODD=CONFIG_SEED=2 SEED=2,ODD=#␣CONFIG_SEED=2 SEED=3,ODD="\\ SEED=2,ODD= SEED=2,ODD="x" SEED=3',
        "LABEL=2 SEED=2,SEED=2 LABEL=2,SEED=3 LABEL=3",
        "COPIED=a SEED=2,COPIED=b SEED=2,COPIED=b SEED=3",
    ],
)
def test_an_outcome_from_a_known_one_is_the_computed_one(
    make_tree: Callable[[str], Tree], requests: str
) -> None:
    used, in_batch = make_tree(KCONFIG), make_tree(KCONFIG)
    found = [outcome(used, words) for words in requests.split(",")]
    assert found == [outcome(make_tree(KCONFIG), words) for words in requests.split(",")]
    assert isinstance(found[0][0], Resolved)
    with in_batch.batch():
        assert [outcome(in_batch, words) for words in requests.split(",")] == found


def test_a_batch_ends_where_others_may_change_the_tree(make_tree: Callable[[str], Tree]) -> None:
    tree = make_tree(KCONFIG)
    with tree.batch():
        expected = outcome(tree, "STRICT=n SEED=2")
    tree.kconf.syms["LABEL"].set_value("from the menu")
    assert outcome(tree, "STRICT=n SEED=2") == expected


def test_a_batch_sets_only_what_differs(
    make_tree: Callable[[str], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(KCONFIG)
    anew: list[int] = []
    forget = kconfiglib.Kconfig.unset_values

    def noted(kconf: kconfiglib.Kconfig) -> None:
        anew.append(1)
        forget(kconf)

    monkeypatch.setattr(kconfiglib.Kconfig, "unset_values", noted)
    with tree.batch():
        for words in (
            "STRICT=n SEED=2",
            "STRICT=n SEED=3",
            "STRICT=n LABEL=x",
            "STRICT=y SEED=3",
            "STRICT=y",
        ):
            outcome(tree, words)
    assert len(anew) == 2


def test_cells_that_differ_in_seeds_are_not_computed_again(
    make_tree: Callable[[str], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(KCONFIG)
    first = tree.resolve(layer(tree, "STRICT=n SEED=2"))
    written: list[object] = []

    def noted(kconf: object, *rest: Any) -> str:
        written.append(kconf)
        return config_text(kconf, *rest)

    monkeypatch.setattr("kharness.config.tree.config_text", noted)
    second = tree.resolve(layer(tree, "STRICT=n SEED=3"))
    assert (written, second.text) == ([], re.sub("SEED=2", "SEED=3", first.text))
    tree.resolve(layer(tree, "LABEL=x SEED=3"))
    assert written == [tree.kconf]
