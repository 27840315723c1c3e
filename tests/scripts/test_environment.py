"""Setting up: what a bare Python is told. What set-up installs is in tests/kharness/environment."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


def environment(root: Path, *arguments: str | Path, python: str = sys.executable) -> tuple[int, str]:
    """Exit code and stderr of scripts/environment.py."""
    command = [python, "-I", str(root / "scripts" / "environment.py"), *map(str, arguments)]
    # what pip takes from the environment must not decide the test
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    return done.returncode, done.stderr


def test_environment_that_has_everything_is_verified(root: Path) -> None:
    assert environment(root, "verify") == (0, "")


def test_environment_without_packages_is_told_what_to_install(root: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    missing = "jinja2, kconfiglib, matplotlib, numpy, orjson, psutil, rich, tiktoken, torch"
    assert environment(root, "verify", python=python) == (
        2,
        f"error: {python} lacks {missing}\n"
        f"hint: {python} -m pip install {missing.replace(', ', ' ')}, or leave VENV= out to use .venv\n",
    )


@pytest.mark.parametrize("arguments", [[], ["create"], ["verify", "x"]])
def test_unknown_arguments_are_refused(root: Path, arguments: list[str]) -> None:
    code, errors = environment(root, *arguments)
    assert code == 2
    assert errors.startswith(f"error: unknown arguments: {' '.join(arguments)}\nhint: ")


@pytest.mark.parametrize(
    ("version", "newest", "supported"),
    [
        ((3, 10, 14), True, False),
        ((3, 11, 0), True, True),
        ((3, 14, 9), True, True),
        ((3, 15, 0), True, False),
        ((3, 15, 0), False, True),  # with packages of its user's own
        ((4, 0, 0), True, False),
    ],
)
def test_python_that_has_no_torch_is_refused_at_once(
    root: Path, version: tuple[int, ...], newest: bool, supported: bool
) -> None:
    script = runpy.run_path(str(root / "scripts/environment.py"))
    if supported:
        script["refuse_version"](version, newest=newest)
        return
    with pytest.raises(script["SetupError"]) as refused:
        script["refuse_version"](version, newest=newest)
    found = ".".join(map(str, version))
    assert str(refused.value) == f"{sys.executable} is Python {found}; kharness runs on 3.11 to 3.14"
    assert refused.value.hint == "name another one: make PYTHON=/path/to/python3.11"


def test_versions_are_those_that_the_project_names(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = [name.rpartition(" ")[2] for name in project["classifiers"]]
    script = runpy.run_path(str(root / "scripts/environment.py"))
    first, last = script["MINIMUM"][1], script["NEWEST"][1]
    assert named == [f"3.{minor}" for minor in range(first, last + 1)]
    assert project["requires-python"] == f">=3.{first}"
    assert f"Python 3.{first} to 3.{last}" in (root / "README.md").read_text()
