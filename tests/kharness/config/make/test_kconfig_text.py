"""The options as make's check reads them are those that kconfiglib reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kharness.config.make.kconfig_text import is_read_whole, read_options
from kharness.config.places import KCONFIG
from kharness.config.refused import KnownOption
from kharness.config.tree import Tree
from monitoring.outside import enter


def test_every_option_is_as_kconfiglib_has_it(root: Path) -> None:
    for top in (root, root / "tests" / "data" / "checkout"):
        tree, options = Tree.load(top), read_options(top / KCONFIG, top)
        assert list(options.options.items()) == list(tree.options.items())
        assert options.trackers() == tree.trackers()
        assert options.affects == tree.affects


def test_options_of_a_model_outside_of_the_tree_are_read_too(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mymodel"
    shutil.copytree(root / "examples" / "mymodel", folder)
    assert is_read_whole(folder / KCONFIG, root)
    options = read_options(folder / KCONFIG, root)
    enter(folder)
    try:
        tree = Tree.load(root)
    finally:
        enter(None)
    assert list(options.options.items()) == list(tree.options.items())
    assert options.trackers() == tree.trackers()


@pytest.mark.parametrize(
    "written_otherwise",
    [
        'if A\n  config B\n\tbool "b"\nendif\n',
        'config A\n\tbool "a"\n\thelp\n\t  Help.\n    config B\n\tbool "b"\n',
        'config B # of mine\n\tbool "b"\n',
        'source "$(FOLDER)/Kconfig"\n',
        'source "*/Kconfig"\n',
        'rsource "more"\n',
        'config A\n\tbool "a" \\\n\tif B\n',
        "FOLDER := mine\n",
    ],
)
def test_a_file_that_is_written_otherwise_is_not_read_whole(tmp_path: Path, written_otherwise: str) -> None:
    (tmp_path / KCONFIG).write_text(written_otherwise)
    (tmp_path / "above").write_text('# above it\nsource "Kconfig"\n')
    assert [is_read_whole(tmp_path / name, tmp_path) for name in (KCONFIG, "above")] == [False, False]


@pytest.mark.parametrize(
    ("ranges", "bounds"),
    [("1 9", ("1", "9")), ("0 7 if C\n\trange 1 9", ("0", "9")), ("1 9 if C", None)],
)
def test_a_value_outside_all_ranges_is_refused_where_one_always_holds(
    tmp_path: Path, ranges: str, bounds: tuple[str, str] | None
) -> None:
    """Where its entry is out of reach it is refused in any case."""
    (tmp_path / KCONFIG).write_text(
        f'config C\n\tbool "c"\nconfig A\n\tdefault 5\nif C\nconfig A\n\tint "a"\n\trange {ranges}\nendif\n'
    )
    for option in (
        read_options(tmp_path / KCONFIG, tmp_path).options["A"],
        Tree.load(tmp_path).options["A"],
    ):
        assert (option.bounds if option.is_limited else None) == bounds


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
