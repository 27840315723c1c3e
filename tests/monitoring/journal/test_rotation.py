"""A journal that is cut into files: no record is lost or doubled, for its writer and for who follows it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from monitoring.journal.encoding.archive import full_files, full_path
from monitoring.journal.records import Record, read_records
from monitoring.journal.rotating_journal import RotatingJournal, newest_record, read_rotated
from monitoring.journal.tail import RecordTail, Tail

PADDING = "x" * 80


def write(journal: RotatingJournal, count: int) -> None:
    for _ in range(count):
        journal.append({"event": "gpu", "time": 1.0, "seq": 0, "attempt": 1, "padding": PADDING})


def seqs(records: list[Record]) -> list[int]:
    return [int(str(record["seq"])) for record in records]


def opened(path: Path, *, file_bytes: int = 1000, keep: int = 100) -> RotatingJournal:
    return RotatingJournal(path, file_bytes=file_bytes, keep=keep)


def test_numbers_go_on_over_files_and_lives(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    for _ in range(4):
        journal = opened(path)
        write(journal, 25)
        journal.close()
    assert seqs(list(read_rotated(path))) == list(range(1, 101))
    assert seqs([record for record in [newest_record(path)] if record]) == [100]
    assert seqs([record for record, _ in read_records(full_files(path)[-1].path)])[-1] in range(90, 101)


def test_oldest_file_of_too_many_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    write(opened(path, keep=3), 100)
    left = seqs(list(read_rotated(path)))
    assert left == list(range(left[0], 101))
    full = [(file.first, file.last) for file in full_files(path)]
    assert len(list(tmp_path.iterdir())) == 4
    assert [first for first, _ in full] == [left[0], full[0][1] + 1, full[1][1] + 1]
    assert all(file.stat().st_size < 1200 for file in tmp_path.iterdir())


def test_kill_between_moving_and_beginning_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    journal = opened(path, file_bytes=10**6)
    write(journal, 10)
    journal.close()
    path.rename(full_path(path, 1, 10))
    journal = opened(path)
    write(journal, 5)
    assert seqs(list(read_rotated(path))) == list(range(1, 16))


def test_file_that_is_met_twice_is_told_once(tmp_path: Path) -> None:
    """A reader may open the newest file before it lists the full ones."""
    path = tmp_path / "gpu_stats.jsonl"
    write(opened(path), 5)
    full_path(path, 1, 5).hardlink_to(path)
    assert seqs(list(read_rotated(path))) == [1, 2, 3, 4, 5]


def test_torn_last_line_is_cut_and_its_number_used_again(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    journal = opened(path)
    write(journal, 3)
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"event":"gpu","seq":4,"att')
    assert seqs(list(read_rotated(path))) == [1, 2, 3]
    write(opened(path), 2)
    assert seqs(list(read_rotated(path))) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(3))
def test_tail_sees_each_record_once_while_files_rotate(tmp_path: Path, seed: int) -> None:
    """Also a second reader that now and then begins anew behind what it has."""
    chance = random.Random(seed)
    path = tmp_path / "gpu_stats.jsonl"
    journal = opened(path, file_bytes=700)
    steady, restarted = Tail(path), Tail(path)
    seen: dict[Tail, list[int]] = {steady: [], restarted: []}
    for _ in range(80):
        write(journal, chance.randrange(8))
        for tail in chance.sample([steady, restarted], chance.randrange(3)):
            tail.fill(chance.randrange(1, 30))
            while tail.waiting:
                seen[tail].append(int(str(tail.take()["seq"])))
        if chance.random() < 0.2:
            assert restarted.seek(restarted.seq) == 0
    for tail in (steady, restarted):
        tail.fill(10**6)
        seen[tail] += [int(str(tail.take()["seq"])) for _ in range(len(tail.waiting))]
        tail.close()
    last = seqs(list(read_rotated(path)))[-1]
    assert seen == {steady: list(range(1, last + 1)), restarted: list(range(1, last + 1))}


def test_tail_finds_any_place_and_tells_what_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    write(opened(path, file_bytes=400_000, keep=2), 10_000)
    first = seqs(list(read_rotated(path)))[0]
    assert first > 1
    tail = Tail(path)
    for behind in (0, first - 1, first, 5_000, 7_777, 9_999, 10_000):
        gone = tail.seek(behind)
        tail.fill(3)
        assert gone == max(0, first - behind - 1)
        begin = max(first, behind + 1)
        assert [tail.take()["seq"] for _ in range(len(tail.waiting))] == list(range(begin, 10_001))[:3]
    tail.close()


def test_tail_passes_over_damage(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"event":"step","seq":{seq},"time":1.0,"attempt":1}}\n' for seq in range(1, 5001)]
    lines[2000:2100] = ["\0" * 30 + "\n"] * 100
    path.write_text("".join(lines))
    tail = Tail(path)
    tail.seek(1990)
    tail.fill(10**6)
    assert [tail.take()["seq"] for _ in range(len(tail.waiting))] == [*range(1991, 2001), *range(2101, 5001)]
    tail.close()


@pytest.mark.parametrize("count", [5, 50])
def test_record_tail_reads_the_rest_of_moved_files(tmp_path: Path, count: int) -> None:
    """Also of several between two looks, of which the reader stops within one."""
    path = tmp_path / "gpu_stats.jsonl"
    journal = opened(path, file_bytes=2000)
    tail = RecordTail(path)
    write(journal, 5)
    found = seqs(list(tail.new()))
    for _ in range(40):
        write(journal, count)
        found += seqs(list(itertools.islice(tail.new(), count - 2)))
        found += seqs(list(tail.new()))
    assert found == list(range(1, 40 * count + 6))


def test_tail_of_a_journal_without_records_finds_the_first_and_what_rotation_moved(tmp_path: Path) -> None:
    path = tmp_path / "gpu_stats.jsonl"
    tail = Tail(path)
    tail.fill(10)
    path.touch()
    for _ in range(2):
        tail.fill(10)
    assert not tail.waiting
    with path.open("a") as file:
        file.write('{"event":"gpu","seq":')  # torn, or being written
    tail.fill(10)
    assert not tail.waiting
    journal = opened(path)
    write(journal, 25)
    assert full_files(path)
    tail.fill(100)
    assert seqs(tail.take_all()) == list(range(1, 26))
    tail.close()
    journal.close()
