"""Directories that nobody else has, and the link to the newest."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kharness.runs.errors import MatrixError
from kharness.runs.files import MATRIX_JSON
from kharness.runs.latest import with_lasting_baseline
from kharness.runs.rundir import create_exclusively, link_latest, results_directory, stamp
from kharness.runs.status import Attempt, RunStatus, read_status, write_status


def test_a_stamp_is_utc() -> None:
    assert stamp(datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC).timestamp()) == "20260131T235959Z"


def test_a_relative_results_folder_starts_at_the_output_directory(tmp_path: Path) -> None:
    assert results_directory("a/b", tmp_path) == tmp_path / "a/b"
    assert results_directory("/a", tmp_path) == Path("/a")


def test_a_taken_name_is_not_given_twice(tmp_path: Path) -> None:
    assert create_exclusively(tmp_path / "results", "x") == tmp_path / "results" / "x"
    assert create_exclusively(tmp_path / "results", "x") is None


def test_results_that_cannot_be_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MatrixError, match="file"):
        create_exclusively(tmp_path / "file", "x")
    with pytest.raises(MatrixError, match=r"no run can be made in .*/file/below: not a directory"):
        create_exclusively(tmp_path / "file" / "below", "x")


def test_latest_moves_to_the_newest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert link_latest(tmp_path / name)
    assert (tmp_path / "latest").readlink() == Path("b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "latest"]


def test_a_baseline_is_what_latest_is_when_the_call_begins(tmp_path: Path) -> None:
    """A folder without runs may have the name of a variant, which stays as it is."""
    for name in ("a", "b", "sgd"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / MATRIX_JSON).touch()
    link_latest(tmp_path / "a")
    given = {"CONFIG_REPORT_BASELINE": str(tmp_path / "sgd"), "RUN": str(tmp_path / "latest")}
    lasting = with_lasting_baseline({**given, "BASELINE": f"{tmp_path}/latest:SEED=1"})
    link_latest(tmp_path / "b")
    assert lasting == {**given, "BASELINE": f"{tmp_path}/a:SEED=1"}


def test_a_folder_called_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "a").mkdir()
    assert not link_latest(tmp_path / "a")
    assert (tmp_path / "latest").is_dir()


def test_a_status_is_read_back_as_written(tmp_path: Path) -> None:
    status = RunStatus(
        "failed", [Attempt(1.5, 7, ended=2.5, exit_code=1, reason="exit code 1"), Attempt(3.0, 8)]
    )
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status


def test_a_status_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"status\.json cannot be read"):
        read_status(tmp_path)
    (tmp_path / "status.json").write_text('{"status": "complete", "attempts": [{"who": 1}]}')
    with pytest.raises(MatrixError, match=r"status\.json cannot be read"):
        read_status(tmp_path)
