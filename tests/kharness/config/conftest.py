"""A checkout to configure in: the real option tree and presets, copied, with the real command beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.tree import Tree

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def tree(root: Path) -> Tree:
    """The shipped option tree."""
    return Tree.load(root)


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
def checkout(root: Path, tmp_path: Path) -> Path:
    """A folder with the shipped Kconfig files, presets and configuration script, and no `.config`."""
    copy = tmp_path / "checkout"
    shipped = [*root.glob("Kconfig"), *root.glob("*/Kconfig"), *root.glob("lib/**/Kconfig")]
    shipped += [*root.glob("defconfigs/*"), *root.glob("*/defconfigs/*"), root / "scripts" / "kconfig.py"]
    for file in shipped:
        target = copy / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return copy


@pytest.fixture
def kconfig(checkout: Path) -> Run:
    """Runs `kconfig.py TARGET` as make does: in the checkout, its variables in the environment."""

    def run(target: str, *, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables, "KHARNESS_MAKE_VARS": " ".join(variables)}
        return subprocess.run(
            [sys.executable, "scripts/kconfig.py", target],
            cwd=checkout,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
