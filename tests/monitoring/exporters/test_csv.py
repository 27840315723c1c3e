"""metrics.csv holds the points of the journal, however often it is left and taken up again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from monitoring.exporters.csv import CsvFile
from monitoring.journal.records import Record


def step(seq: int, **metrics: object) -> Record:
    return {"event": "step", "time": 0.5, "seq": seq, "attempt": 1, "global_step": seq, **metrics}


def deliver(path: Path, *records: Record) -> None:
    table = CsvFile(path)
    table.deliver(records)
    table.close(None)


def test_csv_widens_when_a_metric_appears(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    table = CsvFile(path)
    table.deliver([step(1, train_loss=0.1)])
    table.deliver([step(2, train_loss=None, nan_inf_detected=True, note="a,b\nc", nested={"x": 1})])
    table.deliver([{"event": "end", "time": 1, "seq": 3, "attempt": 1, "status": "complete"}])
    table.close("complete")
    assert path.read_text() == (
        "seq,attempt,event,time,global_step,train_loss,note,nan_inf_detected,status\n"
        "1,1,step,0.5,1,0.1,,,\n"
        '2,1,step,0.5,2,,"a,b\\nc",1,\n'
        "3,1,end,1,,,,,complete\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_csv_keeps_numbers_exactly(tmp_path: Path) -> None:
    numbers = {"a": 0.1 + 0.2, "b": 1e-300, "c": 2**60 + 1, "d": -0.0}
    deliver(tmp_path / "metrics.csv", step(1, **numbers))
    with (tmp_path / "metrics.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert {key: type(value)(row[key]) for key, value in numbers.items()} == numbers


@pytest.mark.parametrize("torn", range(24))
def test_csv_torn_at_any_byte_is_cut_and_continued(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "metrics.csv"
    deliver(path, step(1, train_loss=0.5), step(2, train_loss=0.25))
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole[: len(whole) - len(last) + min(torn, len(last))])
    table = CsvFile(path)
    table.deliver([step(seq, train_loss=2.0**-seq) for seq in (1, 2, 3) if seq > table.last_seq()])
    table.close(None)
    assert path.read_bytes() == whole + b"3,1,step,0.5,3,0.125\n"


def test_csv_torn_in_its_header_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"seq,attempt,eve")
    assert CsvFile(path).last_seq() == 0
    assert path.read_bytes() == b""


def test_csv_of_a_metric_with_any_name_stays_readable(tmp_path: Path) -> None:
    deliver(tmp_path / "metrics.csv", step(1, **{'a,"b"\n': 1.5, "": 2}))
    with (tmp_path / "metrics.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row['a,"b"\\n'], row[""]) == ("1.5", "2")
    assert CsvFile(tmp_path / "metrics.csv").last_seq() == 1
