"""Variables on make's command line reach the targets that read them, and no other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kharness.config.errors import ConfigError
from kharness.config.make_variables import TARGET_VARIABLES, given


@pytest.fixture(scope="module")
def comments(root: Path) -> dict[str, str]:
    """target -> its help comment."""
    text = (root / "Makefile").read_text()
    return dict(re.findall(r"^([\w-]+):[^#\n]*##\s*(.*)$", text, flags=re.M))


def test_a_variable_of_another_target_is_refused() -> None:
    environment = {
        "KHARNESS_MAKE_VARS": "DEFCONFIG",
        "DEFCONFIG": "pruning",
        "KHARNESS_GOALS": "test_matrix train",
    }
    with pytest.raises(ConfigError) as refused:
        given([], environment)
    assert (str(refused.value), refused.value.hint) == (
        "DEFCONFIG=pruning means nothing to make test_matrix train",
        "DEFCONFIG= is for make defconfig",
    )


@pytest.mark.parametrize("goals", ["defconfig test_matrix", "defconfig", ""])
def test_a_variable_counts_for_every_target_of_the_call(goals: str) -> None:
    environment = {
        "KHARNESS_MAKE_VARS": "DEFCONFIG O",
        "DEFCONFIG": "pruning",
        "O": "out",
        "KHARNESS_GOALS": goals,
    }
    assert given(["A=b"], environment) == {"DEFCONFIG": "pruning", "O": "out", "A": "b"}


def test_what_a_help_comment_names_its_target_reads(comments: dict[str, str]) -> None:
    named = {
        (variable, target)
        for target, comment in comments.items()
        for variable in re.findall(r"(?<![:A-Z_])([A-Z_]+)=", comment)  # not B=dir:SYMBOL=value
        if variable in TARGET_VARIABLES
    }
    assert {
        (variable, target) for variable, target in named if target not in TARGET_VARIABLES[variable]
    } == set()
    assert ("DEFCONFIG", "defconfig") in named


def test_readers_are_targets(comments: dict[str, str]) -> None:
    assert {target for readers in TARGET_VARIABLES.values() for target in readers} <= set(comments)


def test_make_hands_over_its_targets(root: Path, tmp_path: Path) -> None:
    probe = tmp_path / "probe.mk"
    recipe = "\n.PHONY: one two\none two:\n\t@printenv KHARNESS_GOALS\n"
    probe.write_text((root / "Makefile").read_text() + recipe)
    command = ["make", "-s", "-f", str(probe), "one", "two"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "one two\none two\n"
    plain = subprocess.run(
        ["make", "-f", str(probe), "-pn"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert re.search(r"^KHARNESS_GOALS := train$", plain.stdout, flags=re.M)
