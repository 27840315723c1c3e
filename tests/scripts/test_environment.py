"""Setting up: what a bare Python is told, and that an interrupted or failed set-up leaves no stamp."""

from __future__ import annotations

import os
import subprocess
import sys
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
    missing = "jinja2, kconfiglib, matplotlib, numpy, orjson, psutil, rich, torch"
    assert environment(root, "verify", python=python) == (
        2,
        f"error: {python} lacks {missing}\n"
        f"hint: {python} -m pip install {missing.replace(', ', ' ')}, or leave VENV= out to use .venv\n",
    )


def test_failed_installation_is_an_error_and_leaves_no_stamp(root: Path, tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{tmp_path}/no-such-package\n")
    stamp = tmp_path / "venv" / ".ready"
    code, errors = environment(root, "create", stamp, requirements)
    assert code == 2
    assert f"error: pip could not install {requirements}\nhint: " in errors
    assert not stamp.exists()


@pytest.mark.parametrize("arguments", [[], ["create"], ["verify", "x"]])
def test_unknown_arguments_are_refused(root: Path, arguments: list[str]) -> None:
    code, errors = environment(root, *arguments)
    assert code == 2
    assert errors.startswith(f"error: unknown arguments: {' '.join(arguments)}\nhint: ")
