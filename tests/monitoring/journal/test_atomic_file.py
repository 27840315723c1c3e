"""Files that are replaced in one step, whatever stands at their names, and what a killed writer leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitoring.exporters.csv import CsvFile
from monitoring.journal.atomic_file import LEFT_AFTER, create, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def gone() -> int:
    """The id of a process that is not there any more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("name", ["status.json.{pid}.tmp", "status.json.tmp"])
def test_link_at_the_temporary_name_is_not_followed(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / f".{name.format(pid=os.getpid())}").symlink_to(precious)
    write_atomically(tmp_path / "status.json", b"{}")
    assert (precious.read_bytes(), (tmp_path / "status.json").read_bytes()) == (b"mine", b"{}")


def test_link_at_the_name_itself_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "status.json").symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "status.json", b"{}")
    assert not (tmp_path / "status.json").is_symlink()
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [b"mine", b"{}"]


def test_file_that_is_there_is_never_opened_by_create(tmp_path: Path) -> None:
    (tmp_path / "taken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        create(tmp_path / "taken")
    assert names(tmp_path) == ["taken"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_leftovers_of_killed_writers_are_removed_by_the_next(tmp_path: Path) -> None:
    random, dead = "0123456789abcdef", gone()
    for name in (f".file.{dead}.{random}.tmp", f".file.{dead}.tmp", f".file.{os.getpid()}.{random}.tmp"):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (0, 0))
    others = [f".file.{dead}.fedcba9876543210.tmp", f".file2.{dead}.{random}.tmp", ".file.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"half")
    os.utime(tmp_path / others[1], (0, 0))
    write_atomically(tmp_path / "file", b"")
    assert LEFT_AFTER == 3600
    assert names(tmp_path) == sorted([*others, f".file.{os.getpid()}.{random}.tmp", "file"])


@pytest.mark.parametrize("prompt", [True, False])
def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, prompt: bool) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(tmp_path / "file", b"", durable=False, prompt=prompt)
    assert (caught.value.filename, names(tmp_path)) == (str(tmp_path / "file"), ["file"])
    assert (tmp_path / "file").is_dir()


def test_file_that_no_training_may_wait_for_is_exchanged_not_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 brings what os.replace puts in the place of another file to the disk first."""
    path = tmp_path / "file"
    write_atomically(path, b"1", durable=False, prompt=True)
    monkeypatch.delattr(os, "replace")
    write_atomically(path, b"2", durable=False, prompt=True)
    assert (path.read_bytes(), names(tmp_path)) == (b"2", ["file"])
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    write_atomically(path, b"3", durable=False, prompt=True)
    assert (path.read_bytes(), path.is_symlink(), names(tmp_path)) == (b"3", False, ["file"])


def test_csv_that_gets_a_column_follows_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".metrics.csv.tmp").symlink_to(precious)
    csv = CsvFile(tmp_path / "metrics.csv")
    csv.deliver([{"event": "step", "seq": 1, "time": 0.0, "attempt": 1, "global_step": 1, "a": 1.0}])
    csv.deliver([{"event": "step", "seq": 2, "time": 0.0, "attempt": 1, "global_step": 2, "b": 1.0}])
    csv.close(None)
    assert precious.read_bytes() == b"mine"
    assert not (tmp_path / "metrics.csv").is_symlink()
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 3
