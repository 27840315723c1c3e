"""Workflow files of GitHub and GitLab run the whole suite on every supported Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from scripts.environment import MINIMUM, NEWEST

VERSIONS = [f"3.{minor}" for minor in range(MINIMUM[1], NEWEST[1] + 1)]
IMAGE = "python:{}-trixie"


@pytest.fixture(scope="module")
def github(root: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    found: dict[Any, Any] = yaml.safe_load((root / ".github/workflows/check.yml").read_text())
    return {"on" if key is True else key: value for key, value in found.items()}


def test_github_runs_all_on_each_python(github: dict[str, Any]) -> None:
    assert (github["name"], github["on"], list(github["jobs"])) == (
        *("check", {"push": None, "pull_request": None}, ["check"]),
    )
    job = github["jobs"]["check"]
    assert job["strategy"] == {"fail-fast": False, "matrix": {"python": VERSIONS}}
    assert job["container"] == IMAGE.format("${{ matrix.python }}")
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        'git config --global --add safe.directory "$GITHUB_WORKSPACE"',
        ".ci/run",
    ]


def test_gitlab_runs_all_on_each_python(root: Path) -> None:
    found = yaml.safe_load((root / ".gitlab-ci.yml").read_text())
    assert found == {
        "check": {
            "image": IMAGE.format("${VERSION}"),
            "timeout": "1 hour",
            "parallel": {"matrix": [{"VERSION": VERSIONS}]},
            "variables": {"GIT_DEPTH": 0},
            "script": [".ci/run"],
        }
    }


def test_what_both_run_is_the_whole(root: Path) -> None:
    """It can be run as it is, and ends with `make check`."""
    assert (root / ".ci/run").stat().st_mode & 0o111
    assert (root / ".ci/run").read_text().splitlines()[-1] == "exec make check"


def test_the_readme_shows_the_workflows_result_and_the_versions(root: Path) -> None:
    workflow = "../../actions/workflows/check.yml"
    versions = f"{VERSIONS[0]} to {VERSIONS[-1]}"
    badges = (
        f"[![check]({workflow}/badge.svg)]({workflow})",
        f"![Python {versions}](docs/images/python.svg)",
    )
    assert "\n".join(badges) in (root / "README.md").read_text()
    svg = ElementTree.parse(root / "docs/images/python.svg").getroot()
    assert [text for text in svg.itertext() if text.strip()] == [f"Python: {versions}", "Python", versions]
