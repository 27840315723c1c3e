"""A copy of the sources in the folder of a matrix, from which its cells train whatever is edited since.

Copied are lib/ and the folders of models, an outside one included. Links lead to the rest, such as
the data.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kharness.runs.errors import MatrixError
from kharness.runs.files import SOURCES
from kharness.runs.launch import copied_model
from monitoring.host.environment import git_state, git_state_and_difference, write_copied_state
from monitoring.outside import enter, outside

TRAIN = "train.py"
NOT_COPIED = "__pycache__"


def copy_sources(root: Path, into: Path) -> None:
    """Make INTO/.sources; MatrixError where the sources change meanwhile."""
    target = into / SOURCES
    copied = ["lib", *sorted(path.parent.name for path in root.glob(f"*/{TRAIN}"))]
    _copy(root, copied, target)
    # What is hidden, or around the matrix itself, is no source.
    place = into.resolve()
    if own := outside():
        names = [e.name for e in own.iterdir() if e.name[0] != "." and not place.is_relative_to(e.resolve())]
        _copy(own, names, _copy_of(own, target))
    for entry in root.iterdir():
        holds_it = place.is_relative_to(entry.resolve())
        if entry.name not in copied and entry.name[0] != "." and not holds_it:
            (target / entry.name).symlink_to(entry.absolute())


def _copy(folder: Path, names: list[str], target: Path) -> None:
    state, difference = git_state_and_difference(folder)
    for name in _files(folder, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, target / name)
    if state is None:
        return
    write_copied_state(target, state, difference)
    if git_state(folder) != state:
        raise MatrixError("the sources changed while they were copied", hint="begin the matrix again")


def _copy_of(model: Path, sources: Path) -> Path:
    return sources / copied_model(model / TRAIN).parent


def _files(root: Path, folders: list[str]) -> Iterator[str]:
    """Files by their paths below root: in git's checkouts those that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
        yield from (name for name in dict.fromkeys(names) if (root / name).is_file())
        return
    for folder in folders:
        for path in (root / folder, *(root / folder).rglob("*")):
            if path.is_file() and NOT_COPIED not in path.parts:
                yield str(path.relative_to(root))


def import_from(directory: Path) -> None:
    """Make the trainings of a matrix, and their children, import the copied sources."""
    sources = directory.absolute() / SOURCES
    if sources.is_dir():
        before = [path for path in [os.environ.get("PYTHONPATH")] if path]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(sources / "lib"), *before])
        if own := outside():
            enter(_copy_of(own, sources).resolve())
