"""The runs in a directory: a matrix, one cell of it, or a single training."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.generate import CONFIG_PY
from kharness.matrix.errors import MatrixError
from kharness.matrix.filter import Filter, choose, parse_filter
from kharness.matrix.launch import OUTPUT_LOG, Launch
from kharness.matrix.matrix_json import MATRIX_JSON
from kharness.matrix.plan import ConfigValues, load
from kharness.matrix.status import STATUS_JSON


@dataclass(frozen=True)
class Member:
    """One run with the axis values that a filter goes by."""

    name: str
    values: Mapping[str, str]
    launch: Launch


@dataclass(frozen=True)
class Found:
    """What a directory holds."""

    directory: Path
    """Of the matrix, or of the run if it belongs to none."""
    members: Sequence[Member]
    chosen: Filter
    is_matrix: bool
    kind: str
    """`matrix`, `sweep` or `run`."""
    settings: Mapping[str, object]
    quarantine: Mapping[str, str]

    @property
    def launches(self) -> list[Launch]:
        """Those that the filter means."""
        return [member.launch for member in self.members if self.chosen.matches(member.name, member.values)]


def find(directory: Path, root: Path, chosen: str = "") -> Found:
    """The matrix or run in `directory`; a cell of a matrix is that matrix with a filter for the cell.

    MatrixError for a directory that holds none, or whose planning was cut short, and for a filter that
    means no cell.
    """
    parent = directory.parent
    if (directory / MATRIX_JSON).is_file():
        return _matrix(directory, root, parse_filter(chosen))
    if (parent / MATRIX_JSON).is_file():
        return _matrix(parent, root, parse_filter(f"{chosen} {directory.name}"))
    if (directory / STATUS_JSON).is_file() or (directory / OUTPUT_LOG).is_file() or _has_run(directory):
        return _single(directory, root)
    if any(directory.glob(f"*/{STATUS_JSON}")):
        raise MatrixError(
            f"{directory} holds cells without a plan: it was interrupted while it was being planned",
            hint="nothing of it has run; plan it again: make test_matrix",
        )
    raise MatrixError(
        f"{directory} holds neither a matrix ({MATRIX_JSON}) nor a run ({STATUS_JSON})",
        hint="name one: RUN=results/latest, or RUN=results/latest/CELL",
    )


def member_named(found: Found, name: str) -> Member:
    """The run of that name, or the only one with that in its name; MatrixError names the nearest ones."""
    names = [member.name for member in found.members]
    for member in found.members:
        if member.name == name:
            return member
    held = [known for known in names if name and name.lower() in known.lower()]
    if len(held) == 1:
        return next(member for member in found.members if member.name == held[0])
    near = held[:3] or difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
    raise MatrixError(f"CELL={name} is not one of {len(names)} cells", hint=f"perhaps {', '.join(near)}")


def _matrix(directory: Path, root: Path, chosen: Filter) -> Found:
    plan = load(directory, root)
    members = [
        Member(cell.name, cell.values, launch) for cell, launch in zip(plan.cells, plan.launches, strict=True)
    ]
    choose(chosen, members)
    return Found(directory, members, chosen, True, plan.kind, plan.settings, plan.quarantine)


def _single(directory: Path, root: Path) -> Found:
    values = ConfigValues(directory / CONFIG_PY)
    model = str(values["MODEL"]) if (directory / CONFIG_PY).is_file() else ""
    launch = Launch(directory.name, directory, root, model, values)
    return Found(directory, [Member(directory.name, {}, launch)], Filter(), False, "run", {}, {})


def _has_run(directory: Path) -> bool:
    return (directory / "run.json").is_file()
