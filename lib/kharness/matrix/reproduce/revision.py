"""The code that a run ran with: the checkout that is here, or its revision in a worktree of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kharness.runs.errors import MatrixError
from monitoring.host.environment import git_state
from monitoring.journal.files import code_diff_name

GitState = Mapping[str, object]
"""Git state in a start record: revision, whether files differ from it, SHA-256 of the difference."""


_OUTSIDE = "the run was made outside a git checkout, so nobody knows its revision"


@dataclass(frozen=True)
class Code:
    """Where a program can be run with the requested code."""

    root: Path
    description: str


@contextmanager
def code_of(
    recorded: Sequence[GitState | None],
    root: Path,
    *,
    anyway: bool = False,
    run: Path | None = None,
    what: str = "code",
    of_program: bool = False,
) -> Iterator[Code]:
    """The code of a run of which each attempt recorded its git state; a worktree is removed in the end.

    What is here is used if it is the same to the last bit. Otherwise a recorded revision is checked out
    elsewhere, with the differences that the directory of the `run` has, and for anybody's program with links
    to what git does not know here, such as data. MatrixError, which names what cannot be had, unless `anyway`
    takes what is here.
    """
    here = git_state(root)
    if recorded and all(state is not None and state == here for state in recorded):
        yield Code(root, f"{what}: {_shown(here)}, as it is here")
        return
    changes = _kept_changes(recorded, run)
    missing = _missing(recorded, root, has_changes=changes is not None)
    if not missing:
        state = recorded[0]
        assert state is not None
        with _worktree(str(state["revision"]), root) as folder:
            if changes:
                _apply(changes, folder)
            if of_program:
                _link_untracked(root, folder)
            yield Code(folder, f"{what}: {_shown(state)}, in a worktree of its own")
    elif anyway:
        yield Code(root, f"{what}: {_shown(here)}, as it is here; {missing}")
    else:
        hint = "ANYWAY=y trains with the code that is here, and compares all the same"
        if of_program and missing != _OUTSIDE:
            hint = f"type it in a clone of the program's repository; {hint}"
        raise MatrixError(f"the {what} is not available: {missing}", hint=hint)


def _kept_changes(recorded: Sequence[GitState | None], run: Path | None) -> Path | None:
    """The file with the changes of the recorded code; None without one, or if it is not what was recorded."""
    state = recorded[0] if recorded else None
    if run is None or state is None or not state["dirty"]:
        return None
    path = run / code_diff_name(str(state["diff_sha256"]))
    with contextlib.suppress(OSError):
        if hashlib.sha256(path.read_bytes()).hexdigest() == state["diff_sha256"]:
            return path
    return None


def _apply(changes: Path, folder: Path) -> None:
    """Apply a difference, whose paths are those of the whole repository."""
    top = Path(_git(folder, "rev-parse", "--show-toplevel").stdout.strip())
    applied = _git(top, "apply", "--whitespace=nowarn", str(changes.resolve()))
    if applied.returncode:
        raise MatrixError(f"git apply {changes.name}: {applied.stderr.strip()}", hint="fix what git names")


def _link_untracked(root: Path, folder: Path) -> None:
    """Have a worktree's folder see what git does not know in the checkout: data, environments, results."""
    here, there = (Path(_git(one, "rev-parse", "--show-toplevel").stdout.strip()) for one in (root, folder))
    listed = _git(here, "ls-files", "--others", "--directory", "-z").stdout
    for name in filter(None, listed.split("\0")):
        link = there / name.rstrip("/")
        if link.name != "__pycache__" and not os.path.lexists(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(here / name)


def _missing(recorded: Sequence[GitState | None], root: Path, *, has_changes: bool) -> str:
    """Why no worktree can have the code; empty if one can."""
    known = [state for state in recorded if state is not None]
    if not known or len(known) < len(recorded):
        return _OUTSIDE
    if any(state != known[0] for state in known):
        return f"its attempts ran with different code: {', then '.join(_shown(state) for state in known)}"
    if known[0]["dirty"] and not has_changes:
        return f"the run's code was {_shown(known[0])}, and those changes are not kept anywhere"
    if _git(root, "cat-file", "-e", f"{known[0]['revision']}^{{commit}}").returncode:
        return f"the run's revision {known[0]['revision']} is not in this repository (git fetch may bring it)"
    return ""


@contextmanager
def _worktree(revision: str, root: Path) -> Iterator[Path]:
    """The project's folder in a new worktree of a revision; folders keep their names, which packages have."""
    inside = _git(root, "rev-parse", "--show-prefix").stdout.strip()
    top = Path(_git(root, "rev-parse", "--show-toplevel").stdout.strip())
    with tempfile.TemporaryDirectory(prefix="kharness-") as parent:
        folder = Path(parent) / top.name
        try:
            added = _git(root, "worktree", "add", "--detach", "--quiet", str(folder), revision)
            if added.returncode:
                raise MatrixError(f"git worktree add: {added.stderr.strip()}", hint="fix what git names")
            yield folder / inside
        finally:
            _git(root, "worktree", "remove", "--force", str(folder))
            _git(root, "worktree", "prune")


def _shown(state: GitState | None) -> str:
    if state is None:
        return "of no git revision"
    changes = f" with changes of SHA-256 {str(state['diff_sha256'])[:12]}…" if state["dirty"] else ""
    return f"revision {str(state['revision'])[:12]}{changes}"


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
