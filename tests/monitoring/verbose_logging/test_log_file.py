"""The log's file: rotated, compressed, continued, locked; and what a disk that takes nothing does to it."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monitoring.verbose_logging.log_file import ErrorLog, LogFile, open_log, rank_path


def opened(path: Path, **options: int) -> LogFile:
    return LogFile(path, ErrorLog(path.parent, 0), **options)


def numbers(data: bytes) -> list[int]:
    return [json.loads(line)["n"] for line in data.splitlines()]


def errors(folder: Path) -> list[str]:
    """The errors without their times."""
    return [
        line.partition(" ERROR ")[2]
        for line in (folder / "verbose_logging_errors.log").read_text().splitlines()
    ]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Within it, no file of this process grows beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_files_are_compressed_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = opened(path, file_bytes=30, keep=2)
    for number in range(10, 20):
        log.append([{"n": number}])  # 9 bytes
    log.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("log.jsonl", "log.jsonl.000001.gz", "log.jsonl.000002.gz")
    ]
    stored = [gzip.decompress((tmp_path / f"log.jsonl.00000{n}.gz").read_bytes()) for n in (1, 2)]
    assert [*map(numbers, stored), numbers(path.read_bytes())] == [
        [10, 11, 12, 13],
        [14, 15, 16, 17],
        [18, 19],
    ]
    log = opened(path, file_bytes=30, keep=2)
    log.append([{"n": number} for number in range(20, 24)])
    log.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("log.jsonl", "log.jsonl.000002.gz", "log.jsonl.000003.gz")
    ]


def test_what_a_killed_process_left_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n"')  # torn
    (tmp_path / "log.jsonl.000004").write_bytes(b'{"n":0}\n')  # moved aside, not compressed
    log = opened(path)
    log.append([{"n": 3}])
    log.close()
    assert numbers(path.read_bytes()) == [1, 2, 3]
    assert numbers(gzip.decompress((tmp_path / "log.jsonl.000004.gz").read_bytes())) == [0]
    assert not (tmp_path / "log.jsonl.000004").exists()


def test_lines_are_strict_json(tmp_path: Path) -> None:
    log = opened(tmp_path / "log.jsonl")
    log.append([{"n": 1, "metrics": {"loss": float("nan")}, "what": object()}])
    log.close()
    found = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=lambda text: 1 / 0)
    assert found == {
        "n": 1,
        "metrics": {"loss": None},
        "what": None,
        "unserializable": ["what"],
        "nonfinite": ["metrics"],
        "nan_inf_detected": True,
    }


def test_a_full_disk_keeps_lines_in_memory_until_it_takes_them(tmp_path: Path) -> None:
    log = opened(tmp_path / "log.jsonl")
    log.append([{"n": 1}])
    with full_disk(12):
        log.append([{"n": 2}])
        log.append([{"n": 3}])
        assert numbers((tmp_path / "log.jsonl").read_bytes()) == [1]
    log.append([{"n": 4}])
    log.close()
    assert numbers((tmp_path / "log.jsonl").read_bytes()) == [1, 2, 3, 4]


def test_a_disk_that_takes_a_part_of_some_entries_has_each_of_them_once(tmp_path: Path) -> None:
    log = opened(tmp_path / "log.jsonl")
    with full_disk(12):
        log.append([{"n": number} for number in range(1, 4)])
        assert numbers((tmp_path / "log.jsonl").read_bytes()) == [1]
    log.close()
    assert numbers((tmp_path / "log.jsonl").read_bytes()) == [1, 2, 3]


def test_what_a_disk_never_took_is_in_the_log_of_errors(tmp_path: Path) -> None:
    log = opened(tmp_path / "log.jsonl")
    with full_disk(1):
        log.append([{"n": 1}])
        log.close()
    log.append([{"n": 2}])  # nothing happens
    path = tmp_path / "log.jsonl"
    ErrorLog(tmp_path, 0).add("last")
    assert errors(tmp_path)[-1] == "last"
    assert path.read_bytes() == b""


def test_two_trainings_do_not_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first, second = opened(path), open_log(path, ErrorLog(tmp_path, 0))
    second.append([{"n": 2}])
    second.close()
    first.append([{"n": 1}])
    first.close()
    assert numbers(path.read_bytes()) == [1]
    assert errors(tmp_path) == [
        f"{path} cannot be written: RunBusyError: {path} is being written by another process"
    ]


def test_a_place_that_cannot_be_written_is_in_the_log_of_errors(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    log: Any = open_log(tmp_path / "log.jsonl", ErrorLog(tmp_path, 0))
    log.append([{"n": 1}])
    assert "Is a directory" in errors(tmp_path)[0]


def test_the_log_of_errors_repeats_nothing_and_never_raises(tmp_path: Path) -> None:
    log = ErrorLog(tmp_path, 0)
    for _ in range(3):
        log.add("writing", ValueError("a\nb"))
    ErrorLog(tmp_path / "missing", 0).add("nowhere")
    assert errors(tmp_path) == [r"writing: ValueError: a\nb"]
    assert not (tmp_path / "missing").exists()


def test_each_rank_has_a_file_of_its_own() -> None:
    names = [rank_path(Path("logs/verbose_training_logs.jsonl"), rank).name for rank in (0, 1, 12)]
    assert names == [
        "verbose_training_logs.jsonl",
        "verbose_training_logs.rank0001.jsonl",
        "verbose_training_logs.rank0012.jsonl",
    ]
