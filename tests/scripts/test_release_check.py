"""`make release-check`: what it says of a project, and that our archives install and work."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.config.errors import KharnessError


@pytest.fixture(scope="module")
def script(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "scripts/release_check.py"))


def write(root: Path, version: str, *, heading: str) -> None:
    (root / "lib").mkdir(exist_ok=True)
    (root / "lib/VERSION").write_text(f"{version}\n")
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n## 0.0.1 (2020-01-01)\n")


def said(check: Callable[[Path], str], root: Path) -> str:
    try:
        return check(root)
    except KharnessError as error:
        return f"not yet: {error}"


@pytest.mark.parametrize(
    ("version", "heading", "expected"),
    [
        ("0.2.0", "0.2.0 (2026-11-27)", ["0.2.0", "0.2.0 (2026-11-27)"]),
        (
            "0.2.0.dev0",
            "0.2.0 (unreleased)",
            [
                "not yet: 0.2.0.dev0 is not a release: write 0.2.0",
                "not yet: CHANGELOG.md begins with 0.2.0 (unreleased), not 0.2.0 (YYYY-MM-DD)",
            ],
        ),
        (
            "0.2.0",
            "0.1.0 (2026-11-27)",
            [
                "0.2.0",
                "not yet: CHANGELOG.md begins with 0.1.0 (2026-11-27), not 0.2.0 (YYYY-MM-DD)",
            ],
        ),
    ],
)
def test_version_and_changelog_are_of_one_release(
    script: dict[str, Any], tmp_path: Path, version: str, heading: str, expected: list[str]
) -> None:
    write(tmp_path, version, heading=heading)
    assert [said(script[name], tmp_path) for name in ("version", "changelog")] == expected


def test_the_tree_is_clean_and_the_tag_is_new(script: dict[str, Any], tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@l", *words]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    write(tmp_path, "0.2.0", heading="")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    assert said(script["clean_tree"], tmp_path) == git("rev-parse", "--short", "HEAD")
    assert said(script["new_tag"], tmp_path) == "v0.2.0"
    (tmp_path / "more").touch()
    git("tag", "v0.2.0")
    assert said(script["clean_tree"], tmp_path) == "not yet: 1 files are not committed, such as more"
    assert said(script["new_tag"], tmp_path) == "not yet: v0.2.0 is there already"


def test_every_check_is_told_and_one_that_fails_counts(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise KharnessError("no")

    assert script["report"]([("one", fail), ("two", lambda: "yes")]) == 3
    assert capsys.readouterr().out == "not yet one: no\nok      two: yes\n"
    assert script["report"]([("two", lambda: "yes")]) == 0


@pytest.fixture(scope="module")
def archives(script: dict[str, Any], root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the archives of this tree."""
    folder = tmp_path_factory.mktemp("release")
    built = script["build"](root, folder)
    version = (root / "lib/VERSION").read_text().strip()
    assert built.startswith(f"torch_kharness-{version}.tar.gz, "), built
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_our_archives_install_and_work(script: dict[str, Any], archives: Path, python: str) -> None:
    """On this Python, as CI runs it on each, and on those that have an environment in this checkout."""
    if script["interpreter"](python) is None:
        pytest.skip(f"python{python} is not installed")
    if script["packages"](python) is None:
        pytest.skip(f"there is no .venv-{python}: make check PYTHON=python{python}, make release-check")
    said = script["install_and_try"](archives, python)
    assert said == "both archives work without torch, Kconfig and a network"


def test_a_python_that_is_not_installed_is_skipped(
    script: dict[str, Any],
    archives: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path / "python3.99"
    other.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2; exit 127\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    checks = [("Python 3.99", lambda: script["install_and_try"](archives, "3.99"))]
    assert script["report"](checks) == 0
    assert capsys.readouterr().out == "skipped Python 3.99: python3.99 is not installed\n"
