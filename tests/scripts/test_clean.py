"""`make clean`, `mrproper` and `distclean` remove what they say, and never results or data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KEPT = [
    "results/run/.config",
    "results/run/__pycache__/kept.pyc",
    "data/mnist/.pytest_cache/kept",
    "lenet5/train.py",
    "outside/__pycache__/kept.pyc",
    ".venv-mine/lib/__pycache__/kept.pyc",
]
CACHES = [
    "lib/a/__pycache__/x.pyc",
    ".mypy_cache/x",
    ".ruff_cache/x",
    "tests/.pytest_cache/x",
    ".hypothesis/x",
]
CONFIGURATION = [".config", ".config.old", ".config.lock", ".config.origins.json", "config.py", "defconfig"]
HALF_WRITTEN = ["..config.123.tmp", ".config.py.9.tmp"]
SETUP = [".venv/pyvenv.cfg", ".venv/lib/__pycache__/x.pyc", "lib/kharness.egg-info/PKG-INFO"]
SETUP += [".venv-3.13/pyvenv.cfg", ".venv-3.13/lib/__pycache__/x.pyc"]


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "checkout"
    for name in [*KEPT, *CACHES, *CONFIGURATION, *HALF_WRITTEN, *SETUP, "out/.config", "out/config.py"]:
        file = copy / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    shutil.move(copy / "outside", tmp_path / "outside")
    (copy / "link").symlink_to(tmp_path / "outside")
    (copy / "scripts").mkdir()
    shutil.copy(root / "scripts" / "clean.py", copy / "scripts")
    return copy


def test_a_model_outside_is_cleaned_too(checkout: Path) -> None:
    model = checkout / "mine"  # where `clean` below sees it
    for name in (".config", "train.py", "__pycache__/x.pyc", "results/run/.config"):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).touch()
    (checkout / "out").rename(checkout / "results/out")
    removed = {name for name in clean(checkout, "mrproper", M=str(model)) if name.startswith("mine")}
    assert removed == {"mine/.config", "mine/__pycache__/x.pyc"}
    assert (checkout / ".config").exists()


def clean(checkout: Path, target: str, **variables: str) -> set[str]:
    """The files that a target removed."""

    def present() -> set[str]:
        return {str(p.relative_to(checkout)) for p in checkout.rglob("*") if p.is_file()}

    before = present()
    environment = {**os.environ, **variables, "KHARNESS_MAKE_VARS": " ".join(variables)}
    subprocess.run([sys.executable, "scripts/clean.py", target], cwd=checkout, env=environment, check=True)
    assert (checkout.parent / "outside" / "__pycache__" / "kept.pyc").exists()
    return before - present()


@pytest.mark.parametrize(
    ("target", "removed"),
    [
        ("clean", CACHES),
        ("mrproper", [*CACHES, *CONFIGURATION, *HALF_WRITTEN]),
        ("distclean", [*CACHES, *CONFIGURATION, *HALF_WRITTEN, *SETUP]),
    ],
)
def test_target_removes_exactly(target: str, removed: list[str], checkout: Path) -> None:
    assert clean(checkout, target) == set(removed)


def test_mrproper_cleans_the_output_directory(checkout: Path) -> None:
    assert clean(checkout, "mrproper", O="out") == {*CACHES, "out/.config", "out/config.py"}


def test_distclean_leaves_a_folder_that_is_no_environment(checkout: Path) -> None:
    (checkout / ".venv" / "pyvenv.cfg").unlink()
    assert ".venv/lib/__pycache__/x.pyc" not in clean(checkout, "distclean")
