"""The process and the program of a training, as its run.json and start records have them."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from monitoring.gpu.masks import mask_of
from monitoring.host.environment import git_state_and_difference, versions
from monitoring.host.name import host_name
from monitoring.host.process import process_started
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import code_diff_name
from monitoring.journal.records import Record
from monitoring.outside import MODEL_GIT, outside

# Bytes; a larger difference is of data that somebody has added to git's index.
MOST_BYTES = 8 * 2**20


def program() -> tuple[Record, Mapping[str, bytes]]:
    """Return the versions that can change a result and the git states; by their fields the differences."""
    found = {name: git_state_and_difference(folder) for name, folder in _code_folders().items()}
    states = {name: state for name, (state, _) in found.items()}
    return {"versions": versions(), **states}, {name: difference for name, (_, difference) in found.items()}


def _code_folders() -> dict[str, Path | None]:
    """Return the folders whose git states count, by the field of each.

    A model outside of the tree has its own beside that of the tree, which trains it.
    """
    folder, own = _program_folder(), outside()
    if own is None or folder is None or not folder.resolve().is_relative_to(own):
        return {"git": folder}
    return {"git": Path(__file__).parents[3], MODEL_GIT: own}


def _program_folder() -> Path | None:
    """Return the folder of the program, whose git revision counts; None for one that is no file."""
    program = Path(sys.argv[0]).absolute()
    return program.parent if program.is_file() else None


def keep_code_diffs(run_dir: Path, about: Mapping[str, object], differences: Mapping[str, bytes]) -> None:
    """Keep with a run what differs from the revisions that it is `about`, as `program` returns both."""
    for name, difference in differences.items():
        keep_code_diff(run_dir, about[name], difference)


def keep_code_diff(run_dir: Path, state: object, difference: bytes) -> None:
    """Keep with a run what `git diff` said for the git state of this attempt."""
    if not isinstance(state, Mapping) or not state.get("dirty") or len(difference) > MOST_BYTES:
        return
    path = run_dir / code_diff_name(str(state["diff_sha256"]))
    if not path.exists():
        with contextlib.suppress(OSError):  # the disk is full: the journal says that
            write_atomically(path, difference, durable=False)


def this_process() -> Record:
    """Return who trains: host, command and process, for the attempt in run.json."""
    return {
        "started": time.time(),
        "host": host_name(),
        "command": shlex.join([sys.executable, *sys.argv]),
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()),
        **({"visible_devices": mask} if (mask := mask_of(os.environ)) else {}),
    }
