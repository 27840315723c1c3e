"""The suite sees nothing of the shell, or the make, that runs it: `make check` exports what recipes read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import environment_kept


@pytest.fixture(scope="module")
def seen_by_a_fixture() -> dict[str, str]:
    """The environment of a fixture that outlives a test, which is made before any fixture of a test."""
    return dict(os.environ)


def test_a_fixture_of_a_module_sees_nothing(seen_by_a_fixture: dict[str, str]) -> None:
    leaked = {"KHARNESS_GOALS", "KHARNESS_MAKE_VARS", "MAKEFLAGS", "MAKELEVEL", "TRACKER", "WANDB_API_KEY"}
    assert leaked & set(seen_by_a_fixture) == set()


def test_what_a_test_writes_to_the_environment_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFT_ALONE", "as it was")
    before = dict(os.environ)
    with environment_kept():
        os.environ.update({"LEFT_ALONE": "no", "TORCHINDUCTOR_CACHE_DIR": "/somewhere"})
        del os.environ["PATH"]
    assert dict(os.environ) == before


def test_bytecode_is_written(seen_by_a_fixture: dict[str, str]) -> None:
    """Or each process that the suite starts would compile what it imports."""
    assert ("PYTHONDONTWRITEBYTECODE" in seen_by_a_fixture, sys.dont_write_bytecode) == (False, False)


def test_nothing_reaches_the_suite_from_the_make_that_runs_it(root: Path) -> None:
    environment = {
        **os.environ,
        "KHARNESS_GOALS": "check",
        "KHARNESS_MAKE_VARS": "O",
        "MAKEFLAGS": "n",
        "MAKELEVEL": "1",
        "TRACKER": "both",
        "WANDB_API_KEY": "x",
    }
    test = f"{Path(__file__).relative_to(root)}::test_a_fixture_of_a_module_sees_nothing"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "."), done.stdout
