"""Which records of a journal count, as its start records say."""

from __future__ import annotations

from pathlib import Path

import orjson

from monitoring.journal.lineage import Lineage, counting, counting_in, start_records
from monitoring.journal.records import Record
from monitoring.journal.run_state import superseded


def journal(directory: Path, records: list[Record]) -> Path:
    path = directory / "metrics.jsonl"
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def begun(seq: int, attempt: int, first: int | None = None, last: int = 0, *, resumed: bool = True) -> Record:
    return {
        "event": "start",
        "seq": seq,
        "attempt": attempt,
        "resumed_from": {"attempt": attempt - 1} if resumed else None,
        "supersedes": {"first_seq": first, "last_seq": last} if first else None,
    }


def logged(event: str, seq: int, attempt: int, **fields: object) -> Record:
    return {"event": event, "seq": seq, "attempt": attempt, **fields}


# Attempt 1 began; attempt 2 went on from before its second step; attempt 3 began anew; attempt 4 went on.
STORY: list[Record] = [
    begun(1, 1, resumed=False),
    logged("step", 2, 1),
    logged("checkpoint", 3, 1, checkpoint_path="/run/checkpoints/a.pt"),
    logged("step", 4, 1),
    begun(5, 2, 4, 4),
    logged("step", 6, 2),
    logged("end", 7, 2, status="complete"),
    begun(8, 3, 1, 7, resumed=False),
    logged("checkpoint", 9, 3, checkpoint_path="/run/checkpoints/b.pt"),
    logged("step", 10, 3),
    logged("gap", 11, 3),
    begun(12, 4, 10, 11),
    logged("step", 13, 4),
]


def test_each_start_record_takes_out_what_it_supersedes(tmp_path: Path) -> None:
    def counted(count: int) -> list[object]:
        return [record["seq"] for record in counting(STORY[:count])]

    def read(count: int, last_seq: int | None = None) -> list[object]:
        return [record["seq"] for record in counting_in(journal(tmp_path, STORY[:count]), last_seq)]

    assert [read(count) for count in (4, 7, 8, 13)] == [counted(count) for count in (4, 7, 8, 13)]
    assert read(13, 7) == counted(7)
    assert counted(4) == [1, 2, 3, 4]
    assert counted(7) == [1, 2, 3, 5, 6, 7]
    assert counted(8) == [1, 5, 8]
    assert counted(13) == [1, 5, 8, 9, 11, 12, 13]


def test_lineage_begins_with_the_last_attempt_that_began_anew(tmp_path: Path) -> None:
    early = Lineage.read(journal(tmp_path, STORY[:7]))
    assert [start["attempt"] for start in early.starts] == [1, 2]
    assert (early.complete, early.checkpoints, early.last_seq) == (True, {"a.pt": 3}, 7)
    lineage = Lineage.read(journal(tmp_path, STORY))
    assert [start["attempt"] for start in lineage.starts] == [3, 4]
    assert (lineage.complete, lineage.end, lineage.checkpoints) == (False, {}, {"b.pt": 9})
    assert (lineage.has_attempt(3), lineage.has_attempt(2)) == (True, False)
    assert [lineage.has_superseded(3, seq) for seq in (8, 9, 10)] == [False, False, True]
    assert [lineage.has_lost(3, seq) for seq in (10, 11, 12)] == [False, False, True]


def test_journal_without_these_fields_counts_whole(tmp_path: Path) -> None:
    records: list[Record] = [logged("start", 1, 1), logged("step", 2, 1), logged("start", 3, 2)]
    assert counting(records) == records
    assert [start["seq"] for start in Lineage.read(journal(tmp_path, records)).starts] == [3]
    assert list(superseded(records[0])) == []


def test_start_records_are_those_of_the_event_in_whole_lines(tmp_path: Path) -> None:
    told = journal(tmp_path, [logged("step", 1, 1, event_of="start"), begun(2, 1), logged("step", 3, 1)])
    with told.open("ab") as file:
        file.write(b'no "start" of a record\n' + orjson.dumps(begun(4, 2)))
    assert (list(start_records(told)), list(start_records(tmp_path / "none"))) == ([begun(2, 1)], [])


def test_no_journal_has_no_lineage(tmp_path: Path) -> None:
    assert Lineage.read(tmp_path / "metrics.jsonl") == Lineage()
