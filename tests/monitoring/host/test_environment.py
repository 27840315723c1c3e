"""The git state that a run records."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from monitoring.host.environment import git_state


def git(folder: Path, *arguments: str) -> bytes:
    name = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    return subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one\n")
    git(tmp_path, "add", "file")
    return tmp_path


def test_there_is_none_outside_git_and_before_the_first_commit(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert git_state(tmp_path_factory.mktemp("elsewhere")) is None
    assert git_state(repository) is None


def test_a_repository_is_found_wherever_git_finds_it(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the folder, behind a link to it, of a further worktree, and where GIT_DIR names it."""
    git(repository, "commit", "-qm", "first")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    git(repository, "worktree", "add", "-q", str(elsewhere / "worktree"))
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    (elsewhere / "link").symlink_to(below)
    found = [git_state(place) for place in (below, elsewhere / "link", elsewhere / "worktree")]
    monkeypatch.chdir(below)
    found.append(git_state())
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    found.append(git_state(elsewhere))
    revision = git(repository, "rev-parse", "HEAD").decode().strip()
    assert found == [{"revision": revision, "dirty": False, "diff_sha256": None}] * 5


def test_untracked_files_are_no_difference(repository: Path) -> None:
    git(repository, "commit", "-qm", "first")
    (repository / "other").write_text("two\n")
    git(repository, "config", "status.showStash", "true")
    revision = git(repository, "rev-parse", "HEAD").decode().strip()
    assert git_state(repository) == {"revision": revision, "dirty": False, "diff_sha256": None}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("detached", [False, True])
def test_tracked_files_that_differ_are_told_by_their_difference(
    repository: Path, staged: bool, detached: bool
) -> None:
    git(repository, "commit", "-qm", "first")
    if detached:
        git(repository, "checkout", "-q", "--detach")
    (repository / "file").write_text("two\n")
    if staged:
        git(repository, "add", "file")
    revision = git(repository, "rev-parse", "HEAD").decode().strip()
    difference = hashlib.sha256(git(repository, "diff", "HEAD", "--binary")).hexdigest()
    assert git_state(repository) == {"revision": revision, "dirty": True, "diff_sha256": difference}
