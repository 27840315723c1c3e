"""Which of the installed packages `make requirements` pins."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def requirements(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements", root / "scripts/requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_named_package_is_pinned_though_it_looks_like_one_of_a_torch_build(requirements: ModuleType) -> None:
    frozen = ["nvidia-ml-py==13.615.71", "nvidia-cublas==13.1.0", "triton==3.7.1", "pip==26.1", "rich==15.0"]
    named = requirements.named_in(requirements.FOLDER / "run.in")
    assert {"torch", "nvidia-ml-py", "rich"} <= named
    assert [line for line in frozen if requirements.keep(line, named)] == [frozen[0], frozen[-1]]


@pytest.mark.parametrize("kind", ["run", "test"])
def test_every_named_package_is_pinned(requirements: ModuleType, kind: str) -> None:
    files = {"run": ["run.txt"], "test": ["test.txt", "run.txt"]}[kind]  # the tests' begins with run.txt
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for file in files
        for line in (requirements.FOLDER / file).read_text().splitlines()
    }
    named = requirements.named_in(requirements.FOLDER / f"{kind}.in")
    assert {name.lower().replace("_", "-") for name in named} - pinned == set()
