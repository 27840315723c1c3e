"""Full files of a journal as archives: each record once for every reader, whenever a process is killed."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import orjson
import pytest

from kharness.report.gpu.history import read_gpu_history
from monitoring.agent.sample_threads.gpu_stats import THINNING
from monitoring.gpu.sample import MIB
from monitoring.journal.encoding.archive import (
    archive_path,
    archives,
    full_files,
    full_path,
    thinned,
    write_archive,
)
from monitoring.journal.encoding.archiver import Archiver
from monitoring.journal.files import GPU_STATS
from monitoring.journal.records import JSON_LINE
from monitoring.journal.rotating_journal import RotatingJournal, newest_record, read_rotated
from monitoring.journal.tail import Tail


def write(journal: RotatingJournal, count: int) -> None:
    for _ in range(count):
        journal.append({"event": "gpu", "time": 1.0, "seq": 0, "attempt": 1, "padding": "x" * 80})


def archiver(path: Path, told: list[str], *, file_bytes: int = MIB, keep: int = 16) -> Archiver:
    return Archiver(
        path,
        THINNING,
        file_bytes=file_bytes,
        keep=keep,
        tell=lambda _, message: told.append(message),
    )


def seqs(path: Path) -> list[object]:
    return [record["seq"] for record in read_rotated(path)]


def taken(tail: Tail) -> list[object]:
    tail.fill(10**6)
    return [record["seq"] for record in tail.take_all()]


def test_full_file_becomes_an_archive_and_goes_when_the_next_is_full(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    journal = RotatingJournal(path, file_bytes=1000, keep=3)
    for _ in range(20):
        write(journal, 8)  # a file holds seven or eight
        archiver(path, []).work(threading.Event())
    assert seqs(path) == list(range(1, 161))
    [full] = full_files(path)
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".xz") == [
        path.name,
        full.path.name,
    ]
    assert journal.removed == 0
    path.write_bytes(b"")
    full.path.unlink()
    newest = newest_record(path)
    assert newest is not None
    assert newest["seq"] == archives(path)[-1].last


@pytest.mark.parametrize("seed", range(3))
def test_tail_sees_each_record_once_while_files_become_archives(tmp_path: Path, seed: int) -> None:
    """One tail that stays open, and one that is opened at every look, with compression at any moment."""
    chance = random.Random(seed)
    path = tmp_path / "gpu_stats.jsonl"
    journal = RotatingJournal(path, file_bytes=700, keep=100)
    steady, restarted = Tail(path), Tail(path)
    seen: list[object] = []
    again: list[object] = []
    for _ in range(25):
        write(journal, chance.randrange(12))
        if chance.random() < 0.4:
            archiver(path, []).work(threading.Event())
        if chance.random() < 0.4:
            seen += taken(steady)
        if chance.random() < 0.3:
            assert restarted.seek(restarted.seq) == 0
            restarted.fill(chance.randrange(1, 30))
            again += [record["seq"] for record in restarted.take_all()]
    written = seqs(path)
    assert written == list(range(1, len(written) + 1))
    assert seen + taken(steady) == written
    assert again + taken(restarted) == written
    steady.close()
    restarted.close()


def test_archive_that_a_kill_left_beside_its_file_is_read_once(tmp_path: Path) -> None:
    """A kill between rename and removal leaves both files; a half-written archive is removed."""
    path = tmp_path / "gpu_stats.jsonl"
    journal = RotatingJournal(path, file_bytes=1000, keep=9)
    write(journal, 20)
    half = f".{archive_path(path, 1, 8).name}.99999999.0123456789abcdef.tmp"
    others = [half.replace("gpu_stats", "gpu_stats.node2"), half.replace("99999999", str(os.getpid()))]
    for name in (half, *others):
        (tmp_path / name).write_bytes(b"\xfd7zXZ")
    archiver(path, []).work(threading.Event())
    assert {file.name for file in tmp_path.glob(".*")} == set(others)
    for archive in archives(path):
        full_path(path, archive.first, archive.last).write_bytes(archive.open().read())
    assert (len(full_files(path)), seqs(path)) == (2, list(range(1, 21)))
    archiver(path, []).work(threading.Event())
    assert [full.last for full in full_files(path)] == [archives(path)[-1].last]
    assert seqs(path) == list(range(1, 21))
    assert archives(path)[0].first == 1
    write(journal, 10)
    assert seqs(path) == list(range(1, 31))


def test_oldest_are_thinned_and_said_so_where_space_runs_out(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    chance = random.Random(1)
    journal = RotatingJournal(path, file_bytes=20_000, keep=3)
    told: list[str] = []
    for number in range(3000):
        noise = chance.randbytes(30).hex()
        journal.append({"event": "gpu", "time": float(number), "seq": 0, "attempt": 1, "noise": noise})
        if number % 100 == 0:
            archiver(path, told, file_bytes=20_000, keep=3).work(threading.Event())
    records = list(read_rotated(path))
    assert sum(int(str(record.get("samples", 1))) for record in records) == 3000
    assert records[0]["seq"] == 1
    assert sum(archive.path.stat().st_size for archive in archives(path)) <= 20_000
    assert set(told) == {
        "gpu_stats.jsonl: of the oldest samples every 10th is kept:"
        " GPU_STATS_FILES times GPU_STATS_FILE_MB are full"
    }


def test_what_cannot_be_thinned_further_is_removed_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    chance = random.Random(1)
    for first in (1, 1001, 2001):
        line = {
            "seq": first,
            "attempt": 1,
            "event": "gpu",
            "thinned": 1000,
            "noise": chance.randbytes(900).hex(),
        }
        write_archive(archive_path(path, first, first + 999), [orjson.dumps(line, option=JSON_LINE)])
    full_path(path, 3001, 3001).write_bytes(b'{"seq":3001,"attempt":1,"event":"gpu","time":1.0}\n')
    path.touch()
    told: list[str] = []
    archiver(path, told, file_bytes=1500, keep=1).work(threading.Event())
    assert [archive.first for archive in archives(path)] == [2001, 3001]
    assert told[-1] == (
        "gpu_stats.jsonl: the oldest samples were removed: GPU_STATS_FILES times GPU_STATS_FILE_MB are full"
    )


def test_thinning_keeps_each_change_and_the_count(tmp_path: Path) -> None:
    states = ["ok"] * 25 + ["lost"] * 2 + ["ok"] * 13
    records = [{"seq": i, "time": float(i), "state": it} for i, it in enumerate(states)]
    lines = map(orjson.dumps, records)
    once = list(thinned(lines, 10, lambda record: record["state"]))
    kept = [list(orjson.loads(line).values()) for line in once]
    assert kept == [
        [0, 0, "ok", 10, 10, 9],
        [10, 10, "ok", 10, 10, 19],
        [20, 20, "ok", 5, 10, 24],
        [25, 25, "lost", 2, 10, 26],
        [27, 27, "ok", 10, 10, 36],
        [37, 37, "ok", 3, 10, 39],
    ]
    twice = [orjson.loads(line) for line in thinned(once, 10, lambda record: record["state"])]
    assert [(it["seq"], it["samples"], it["thinned"], it["until"]) for it in twice] == [
        (0, 25, 100, 24),
        (25, 2, 100, 26),
        (27, 13, 100, 39),
    ]


def test_report_counts_what_a_thinned_record_stands_for(tmp_path: Path) -> None:
    gpu = {"index": 0, "uuid": "GPU-0", "state": "ok", "energy_joules": 1.0}
    common = {"event": "gpu", "attempt": 1, "host": "h", "aggregate_stats": {"energy_joules": 1.0}}
    lines = [
        orjson.dumps(
            {
                **common,
                "time": float(second),
                "seq": second + 1,
                "multi_gpu_data": [{**gpu, "power_draw_watts": 100.0 if second < 300 else 400.0}],
            },
            option=JSON_LINE,
        )
        for second in range(400)
    ]
    path = tmp_path / GPU_STATS
    write_archive(archive_path(path, 1, 300), thinned(lines[:300], 10, lambda _: None))
    path.write_bytes(b"".join(lines[300:]))
    history = read_gpu_history(tmp_path)
    [series] = history.gpus
    assert (history.num_samples, history.seconds, history.mean("power")) == (400, 399.0, 175.0)
    assert series.spreads["power"].n == 400
    assert len([mean for mean in series.curves["power"].means if mean != mean]) == 0
