"""Long logs of a monitor: full files are compressed by another process, and their beginning is kept."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from monitoring.gpu_monitor.metrics_log import THINNING, MetricsLog, compress_full
from monitoring.journal.encoding.archive import archives, full_files, thinned
from monitoring.journal.rotating_journal import read_rotated

from ...waiting import wait_until

STAMP = "20250730_123456"


def sample(number: int, gpu: int = 0, state: str = "ok") -> dict[str, object]:
    return {"timestamp": f"t{number}", "gpu_index": gpu, "state": state, "number": number, "pad": "x" * 40}


def compress(arguments: list[str]) -> None:
    """Compress in this process, at its priority, as the process with these arguments would."""
    path, file_bytes, keep = arguments
    compress_full(Path(path), file_bytes=int(file_bytes), keep=int(keep))


def numbers(path: Path) -> list[object]:
    return [record["number"] for record in read_rotated(path)]


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Where a log would start a process, its arguments are noted."""
    started: list[list[str]] = []

    def spawn(path: str, argv: list[str], environment: object, **options: object) -> int:
        started.append(argv[4:])
        return os.getppid()  # nobody's child here: it counts as one that has ended

    monkeypatch.setattr(os, "posix_spawn", spawn)
    return started


def test_full_file_is_compressed_by_a_process_of_its_own(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=1000)
    for number in range(30):
        log.append(sample(number))
    wait_until(lambda: archives(log.path), "the first archive")
    wait_until(lambda: not list(tmp_path.glob("*-000000009")), "the file to go that it replaces")
    log.close()
    assert numbers(log.path) == list(range(30))


def test_log_is_bounded_and_keeps_its_beginning(tmp_path: Path, by_hand: list[list[str]]) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=20_000, keep=3)
    for number in range(1500):
        log.append({**sample(number // 2, number % 2), "noise": os.urandom(30).hex()})
        if by_hand:
            compress(by_hand.pop())
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 20_000
    kept = list(read_rotated(log.path))
    assert [line["number"] for line in kept[:2]] == [0, 0]
    assert [line["gpu_index"] for line in kept[:2]] == [0, 1]
    assert sum(int(str(line.get("samples", 1))) for line in kept) == 1500
    assert kept[-1]["number"] == 749


def test_files_that_nobody_compresses_are_bounded_too(tmp_path: Path, by_hand: list[list[str]]) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=1000, keep=3)
    for number in range(100):
        log.append(sample(number))
    assert (len(list(tmp_path.iterdir())), log.removed) == (4, len(by_hand) - 3)
    log.close()
    assert numbers(log.path)[-1] == 99


def test_archive_that_a_kill_left_beside_its_file_is_read_once(
    tmp_path: Path, by_hand: list[list[str]]
) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=1000)
    for number in range(30):
        log.append(sample(number))
    full = {path: path.read_bytes() for path in tmp_path.glob("*-0*")}
    compress(by_hand[-1])
    for path, content in full.items():
        path.write_bytes(content)
    assert (len(full), numbers(log.path)) == (3, list(range(30)))
    compress(by_hand[-1])
    assert ([one.last for one in full_files(log.path)], numbers(log.path)) == ([30], list(range(30)))
    log.close()


def test_exception_within_the_change_of_files_loses_no_line(
    tmp_path: Path, by_hand: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler's exception or a full disk during the rotation loses no line."""
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=1000)
    real, failing = os.open, [OSError(28, "No space left on device"), KeyboardInterrupt()]

    def fails(path: Path, *rest: int, **options: int) -> int:
        if failing and path == log.path:
            raise failing.pop()
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", fails)
    for number in range(30):
        try:
            log.append(sample(number))
        except KeyboardInterrupt:
            log.append(sample(100 + number))
    log.close()
    assert numbers(log.path) == [*range(10), 109, *range(10, 30)]


def test_forked_child_leaves_the_change_of_files_to_its_parent(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", STAMP, file_bytes=500)
    child = os.fork()
    if child == 0:
        for number in range(20):
            log.append(sample(number))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.close()
    assert ([path.name for path in tmp_path.iterdir()], numbers(log.path)) == ([log.path.name], [*range(20)])


def test_series_that_stand_between_each_other_are_thinned_each() -> None:
    lost = {(1, 13), (1, 14)}
    records = [
        sample(number, gpu, "lost" if (gpu, number) in lost else "ok")
        for number in range(20)
        for gpu in range(2)
    ]
    lines = thinned(map(orjson.dumps, records), 10, THINNING.distinct, THINNING.series)
    kept = [orjson.loads(line) for line in lines]
    assert [(it["number"], it["gpu_index"], it["state"], it["samples"], it["until"]) for it in kept] == [
        (0, 0, "ok", 10, "t9"),
        (0, 1, "ok", 10, "t9"),
        (10, 0, "ok", 10, "t19"),
        (10, 1, "ok", 3, "t12"),
        (13, 1, "lost", 2, "t14"),
        (15, 1, "ok", 5, "t19"),
    ]
