"""A checkout to configure in: a sample option tree with presets, and the real command beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.places import OUTPUT
from kharness.config.tree import Tree

from ...warm_python import WarmPython

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def tree(root: Path) -> Tree:
    """The option tree of the sample checkout, which stays as it is when the shipped one grows."""
    return Tree.load(root / "tests" / "data" / "checkout")


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[[str], Tree]:
    """Loads an option tree from the text of one Kconfig file."""

    def load(text: str) -> Tree:
        folder = tmp_path / "tree"
        folder.mkdir(exist_ok=True)
        (folder / "Kconfig").write_text(f'mainmenu "small"\n{text}')
        return Tree.load(folder)

    return load


@pytest.fixture
def checkout(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sample checkout with the real configuration script, and no `.config`.

    What is trained in it has the `.config` that a test writes there; else the suite has trainings read none.
    """
    monkeypatch.delenv(OUTPUT)
    copy = tmp_path / "checkout"
    shutil.copytree(root / "tests" / "data" / "checkout", copy)
    (copy / "scripts").mkdir()
    shutil.copy(root / "scripts" / "kconfig.py", copy / "scripts")
    return copy


@pytest.fixture
def kconfig(checkout: Path, warm_python: WarmPython) -> Run:
    """Runs `kconfig.py TARGET` as make does: in the checkout, its variables in the environment."""

    def run(target: str, *, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables, "KHARNESS_MAKE_VARS": " ".join(variables)}
        command = ["scripts/kconfig.py", target]
        return warm_python.run(command, cwd=checkout, env=environment, input=stdin)

    return run
