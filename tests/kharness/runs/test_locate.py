"""A directory is told to be a run, a matrix or a cell by its files and those of its parent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kharness.matrix.selected_runs import Place, locate
from kharness.runs.errors import MatrixError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "tests/data/recorded_matrix", tmp_path / "matrix")
    return tmp_path / "matrix"


def test_a_matrix_its_cells_and_a_run_beside_them(matrix: Path) -> None:
    cell = next(path.parent for path in sorted(matrix.glob("*/status.json")))
    assert locate(matrix) == Place(matrix, is_matrix=True)
    assert locate(cell) == Place(matrix, is_matrix=True, cell=cell.name)
    shutil.copytree(cell, matrix / "reproduced")
    assert locate(matrix / "reproduced") == Place(matrix / "reproduced", is_matrix=False)
    (matrix / "matrix.json").unlink()
    assert locate(cell) == Place(cell, is_matrix=False)


def test_a_cell_without_any_file_belongs_to_its_matrix(matrix: Path) -> None:
    (matrix / "not-begun").mkdir()
    assert locate(matrix / "not-begun") == Place(matrix, is_matrix=True, cell="not-begun")


def test_what_holds_no_run_is_refused_with_the_reason(matrix: Path) -> None:
    with pytest.raises(MatrixError, match="holds neither a matrix"):
        locate(matrix.parent)
    (matrix / "matrix.json").unlink()
    with pytest.raises(MatrixError, match="holds cells without a plan: it was interrupted while"):
        locate(matrix)
