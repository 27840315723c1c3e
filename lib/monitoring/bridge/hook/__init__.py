"""A folder for the module search path of programs, whose Pythons import its `sitecustomize` as they start.

`kharness run --hook`, `python -m monitoring.bridge --hook`: the one place where a program is not left alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PATH = "PYTHONPATH"
FOLDER = str(Path(__file__).parent)
ENDING = ".hook.jsonl"
"""End of the name of a file in the spool, which one process of the program writes."""


def hooked(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with this folder first on the search path of every Python."""
    path = [FOLDER, *filter(None, [environment.get(PATH)])]
    return {**environment, PATH: os.pathsep.join(path)}
