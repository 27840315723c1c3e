"""Commands that a page tells: to record a look, to finish what is planned, to add seeds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.config.make.typed import typed_make
from kharness.config.record import read_record
from kharness.runs.command import COMMAND_JSON
from kharness.runs.latest import shown
from kharness.runs.matrix_plan import axis_of_seeds, takes_seeds
from kharness.runs.seeds_of_run import continue_with_seeds, matrix_of_plan, more_seeds

SEED = "SEED"

# Symbols that say what a matrix is, or how its runs are followed, and not what is trained.
_OWN = ("MATRIX_AXES", "SEED", "TRACKER_RUN_NAME")


def is_of_commands(directory: Path, plan: Mapping[str, Any]) -> bool:
    """Whether a matrix runs anybody's command (`kharness matrix`) and no training of the tree."""
    cells = plan["cells"]
    return bool(cells) and os.path.exists(directory / cells[0]["name"] / COMMAND_JSON)


def place_of(directory: Path) -> str:
    """Return a directory as it is typed."""
    return shlex.quote(shown(directory))


def seeds_command(directory: Path, plan: Mapping[str, Any], seeds: int) -> str:
    """Return the command that adds seeds up to so many to a matrix; empty where it is unknown.

    For a matrix that takes none it plans the same one with them: the values that the command line gave the
    first cell are repeated, so that the question stays the same.
    """
    have = axis_of_seeds(plan)
    wanted = more_seeds(have, seeds)
    if takes_seeds(plan):
        of_commands = is_of_commands(directory, plan)
        return continue_with_seeds(place_of(directory), wanted, of_commands=of_commands)
    if is_of_commands(directory, plan):
        return matrix_of_plan(plan, wanted.replace("|", ",")) if have and plan.get("template") else ""
    if any(axis.get("fragments") for axis in plan["axes"]):
        return ""
    axes = [
        f"{axis['symbol']}={'|'.join(axis['values'])}"
        for axis in plan["axes"]
        if axis["symbol"] != SEED and not axis.get("included")
    ]
    first = directory / plan["cells"][0]["name"] if plan["cells"] else directory
    given = {
        one.symbol: one.value
        for one in read_record(first).asked
        if one.origin.kind == "make variable" and one.symbol not in _OWN
    }
    words = [f"CONFIG_{name}={value}" for name, value in given.items()]
    for name in ("include", "exclude"):
        if plan.get(name):
            words.append(f"CONFIG_MATRIX_{name.upper()}={plan[name]}")
    matrix = f"CONFIG_MATRIX_AXES={' '.join([*axes, f'{SEED}={wanted}'])}"
    return typed_make(shlex.join(["test_matrix", matrix, *words]))
