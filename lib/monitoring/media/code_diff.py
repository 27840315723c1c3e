"""The difference of a dirty checkout from its revision, kept with the run that it trained."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from monitoring.host.environment import git_difference
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import code_diff_name

# Bytes; a larger difference is of data that somebody has added to git's index.
MOST_BYTES = 8 * 2**20


def keep_code_diff(run_dir: Path, state: object, folder: Path | None) -> None:
    """Write what `git diff` says, if it is what the git state of this attempt has the hash of."""
    if not isinstance(state, Mapping) or not state.get("dirty"):
        return
    path = run_dir / code_diff_name(str(state["diff_sha256"]))
    if path.exists():
        return
    difference = git_difference(folder) or b""
    if len(difference) <= MOST_BYTES and hashlib.sha256(difference).hexdigest() == state["diff_sha256"]:
        with contextlib.suppress(OSError):  # the disk is full: the journal says that
            write_atomically(path, difference, durable=False)
