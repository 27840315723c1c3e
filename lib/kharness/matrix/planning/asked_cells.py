"""A FILTER= or CELL= that means no cell, refused before a package is installed: a bare Python runs this."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.dotconfig import CONFIG, assigned, read_text, unquote
from kharness.config.places import home, shown_from
from kharness.config.presets import DEFAULT, find_preset
from kharness.config.refused import KnownOptions
from kharness.matrix.planning.axes import parse_axes
from kharness.matrix.planning.axis_values import given_axes, settle
from kharness.matrix.planning.cells import Cell, combinations, varying
from kharness.matrix.planning.filter import choose, parse_filter
from kharness.runs.errors import MatrixError
from kharness.runs.rundir import plan_path
from monitoring.counts import counted, cut_list

# So many cells a hint names.
MOST_NAMED = 4
# From 0 to 1 (difflib): names below it have little in common.
LEAST_ALIKE = 0.4


def check_planned(options: KnownOptions, variables: Mapping[str, str], output: Path, root: Path) -> None:
    """MatrixError for a FILTER= that means no cell of the matrix that a call is to plan.

    Not where the matrix is more, or less, than the product of axes of symbols.
    """
    chosen = parse_filter(variables.get("FILTER", ""))
    if not chosen.text:
        return
    settings = _settings(output, root)
    settings |= {name.removeprefix("CONFIG_"): value for name, value in variables.items()}
    given, _ = given_axes(options, variables)
    text = given.over(settings.get("MATRIX_AXES", ""), is_given="CONFIG_MATRIX_AXES" in variables)
    axes = parse_axes(text) if text else []
    if not axes or any(axis.files for axis in axes):
        return
    if any(settings.get(name) for name in ("MATRIX_EXCLUDE", "MATRIX_INCLUDE")):
        return
    grid = settle(options, axes)
    choose(chosen, combinations(grid, varying([axis.axis for axis in grid])))


def _settings(output: Path, root: Path) -> dict[str, str]:
    """The texts of the configuration that a matrix begins with."""
    path = output / CONFIG
    if not path.exists():
        path = find_preset(root, DEFAULT)
    found = assigned(read_text(path, shown_from(home(root), path)))
    return {name: unquote(text) for name, text in found if text and text.startswith('"')}


def check_recorded(directory: Path, variables: Mapping[str, str], *, takes_cell: bool) -> None:
    """MatrixError for a FILTER=, or a CELL= where one is taken, that means no cell of a recorded matrix.

    Whatever else is wrong with its plan is said by the command that reads it.
    """
    try:
        cells = json.loads(plan_path(directory).read_bytes())["cells"]
        planned = [Cell(cell["name"], cell["values"], "") for cell in cells]
    except (OSError, ValueError, LookupError, TypeError):
        return
    meant = choose(parse_filter(variables.get("FILTER", "")), planned)
    if takes_cell and meant:
        asked_cell(variables.get("CELL", ""), [cell.name for cell in planned], [cell.name for cell in meant])


def asked_cell(name: str, known: Sequence[str], meant: Sequence[str]) -> str:
    """The cell of that name, or the only one that it is a part of; without a name the only one meant.

    Of `adam` and `adamw` the word `adam` means the first. MatrixError names those that come near.
    """
    if name in known:
        return name
    if not name:
        if len(meant) == 1:
            return meant[0]
        raise MatrixError(
            "CELL is not given", hint=f"for example CELL={meant[0]}; there are {', '.join(meant[:3])} …"
        )
    held = [one for one in known if name.lower() in one.lower()]
    whole = [one for one in held if _has_words(one, name)]
    for fitting in (held, whole):
        if len(fitting) == 1:
            return fitting[0]
    if held:
        shown = [*whole, *(one for one in held if one not in whole)]
        raise MatrixError(
            f"CELL={name} is in {counted(len(held), 'name')}",
            hint=f"say which: {cut_list(shown, MOST_NAMED)}",
        )
    raise MatrixError(
        f"CELL={name} matches none of {counted(len(known), 'name')}",
        hint=f"perhaps {cut_list(_near(name, known), MOST_NAMED)}",
    )


def _near(name: str, known: Sequence[str]) -> Sequence[str]:
    """Those with most of the words first, then the most alike; all if none is."""
    import difflib

    words = _words(name)
    alike = {
        one: max(difflib.SequenceMatcher(None, part, name).ratio() for part in (one, *_words(one)))
        for one in known
    }
    common = {one: sum(_has_words(one, word) for word in words) for one in known}
    near = [one for one in known if common[one] or alike[one] > LEAST_ALIKE]
    return sorted(near, key=lambda one: (-common[one], -alike[one])) or known


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]


def _has_words(name: str, words: str) -> bool:
    """Whether the name has them as complete words: `adamw_seed-1` does not have `adam`."""
    return re.search(rf"(?<![a-z0-9.]){re.escape(words.lower())}(?![a-z0-9.])", name.lower()) is not None
