"""The folder of a model outside of the tree, whose options, presets and drop-ins join those of the tree.

Every process of a training finds it in its environment: `make M=DIR` puts it there, and so does DIR/train.py.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "KHARNESS_OUTSIDE"

MODEL_GIT = "model_git"
"""The field with the git state of such a folder, in start records and plans; `git` is that of the tree."""


def outside() -> Path | None:
    """Return the folder; None for a call that is of the tree alone."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def enter(folder: Path | None) -> None:
    """Make this process and its children use a folder's model, or the tree alone."""
    if folder is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = str(folder)
