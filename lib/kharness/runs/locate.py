"""Tell what a directory is: a matrix, a cell of one, or a run of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON, OUTPUT_LOG, STATUS_JSON
from kharness.runs.matrix_plan import read_matrix_json
from kharness.runs.rundir import has_plan
from monitoring.journal.files import RUN_JSON


@dataclass(frozen=True)
class Place:
    """The matrix or run of a directory, and which cell it is."""

    directory: Path
    """Directory of the matrix, or of the run if it belongs to none."""
    is_matrix: bool
    cell: str = ""
    """The cell of the matrix that the directory is; empty for the matrix itself."""


def locate(directory: Path) -> Place:
    """The matrix or run that a directory is or belongs to.

    A run next to the cells, such as the reproduction of one, is a run of its own. MatrixError for a directory
    that holds none, or whose planning was cut short.
    """
    parent = directory.parent
    if has_plan(directory):
        return Place(directory, is_matrix=True)
    holds_run = any((directory / name).is_file() for name in (STATUS_JSON, OUTPUT_LOG, RUN_JSON))
    if has_plan(parent) and not (holds_run and _is_no_cell(directory)):
        return Place(parent, is_matrix=True, cell=directory.name)
    if holds_run:
        return Place(directory, is_matrix=False)
    if any(directory.glob(f"*/{STATUS_JSON}")):
        raise MatrixError(
            f"{directory} holds cells without a plan: it was interrupted while it was being planned",
            hint="nothing of it has run; plan it again: make test_matrix",
        )
    raise MatrixError(
        f"{directory} holds neither a matrix ({MATRIX_JSON}) nor a run ({STATUS_JSON})",
        hint="name one: RUN=results/latest, or RUN=results/latest/CELL",
    )


def _is_no_cell(directory: Path) -> bool:
    return all(cell["name"] != directory.name for cell in read_matrix_json(directory.parent)["cells"])
