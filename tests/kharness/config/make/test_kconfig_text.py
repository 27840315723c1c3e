"""The options as make's check reads them are those that kconfiglib reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.config.make.kconfig_text import read_options
from kharness.config.places import KCONFIG
from kharness.config.refused import KnownOption
from kharness.config.tree import Tree


def test_every_option_is_as_kconfiglib_has_it(root: Path) -> None:
    for top in (root, root / "tests" / "data" / "checkout"):
        tree, options = Tree.load(top), read_options(top / KCONFIG, top)
        assert list(options.options.items()) == list(tree.options.items())
        assert options.trackers() == tree.trackers()
        assert options.affects == tree.affects


def test_what_a_file_sources_and_is_not_there_adds_nothing(tmp_path: Path) -> None:
    top = tmp_path / KCONFIG
    top.write_text('source "Kconfig"\nsource "elsewhere/Kconfig"\nconfig A\n\tbool "a"\n')
    assert list(read_options(top, tmp_path).options) == ["A"]
    assert read_options(tmp_path / "none", tmp_path).options == {}


@pytest.mark.parametrize(
    "entry",
    [
        "\tdef_tristate y",
        '\tint "n"\n\trange 1 MOST',
        '\tstring "n"\n\thelp\n\t  Value: number',
        "endif",
    ],
)
def test_an_entry_that_is_written_otherwise_takes_any_value(tmp_path: Path, entry: str) -> None:
    (tmp_path / KCONFIG).write_text(f"config A\n{entry}\n")
    options = read_options(tmp_path / KCONFIG, tmp_path)
    assert options.options == {"A": KnownOption(kind="string", has_prompt=True)}


def test_indentation_is_free_and_a_prompt_may_have_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / KCONFIG).write_text('config A\n  int\n  prompt "n"\n  range 1 9\n  help\n    default 3\n')
    options = read_options(tmp_path / KCONFIG, tmp_path)
    assert options.options == Tree.load(tmp_path).options
