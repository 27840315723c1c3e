"""Our fast encoders give the same bytes as the trackers' own libraries."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.exporters.csv import CsvFile, row, shown
from monitoring.journal.records import MEASURING, Record, fields_of
from monitoring.trackers import tensorboard
from monitoring.trackers._event_file import events_from_the_end, framed
from monitoring.trackers._wandb_log import BLOCK, LogWriter, read_log
from monitoring.trackers._wandb_records import Columns, LogRecords

NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**63 - 1))


@pytest.fixture(scope="module")
def wandb_messages() -> Any:
    """W&B's own. The import takes a second, and each worker of the suite imports this file."""
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2


@given(
    numbers=st.dictionaries(st.text(), NUMBERS),
    texts=st.dictionaries(st.text(), st.text()),
    event=st.text(),
    step=st.integers(0, 2**63 - 1),
    number=st.integers(0, 2**40),
)
def test_row_is_encoded_as_wandbs_own_message(
    wandb_messages: Any, numbers: dict[str, float], texts: dict[str, str], event: str, step: int, number: int
) -> None:
    columns = Columns(list(numbers), {"event": event})
    ours = LogRecords(wandb_messages.Record, number)
    ours.history(columns, list(numbers.values()), texts, step=step)

    theirs = wandb_messages.Record()
    for name, value in [("event", event), *numbers.items(), *texts.items()]:
        theirs.history.item.add(nested_key=[name], value_json=orjson.dumps(value).decode())
    theirs.history.step.num = step
    theirs.num = number + 1
    [encoded] = ours.encoded
    assert wandb_messages.Record.FromString(encoded) == theirs
    if step:  # protobuf leaves a 0 out
        assert encoded == theirs.SerializeToString()


@given(
    points=st.dictionaries(st.text(), st.one_of(NUMBERS, st.booleans()), min_size=1),
    event=st.sampled_from(sorted(MEASURING)),
    step=st.integers(-(2**63), 2**63 - 1),
    time=st.floats(-1e12, 1e12),
)
def test_event_is_encoded_as_tensorboards_own_message(
    points: dict[str, float], event: str, step: int, time: float
) -> None:
    record: Record = {"event": event, "time": time, "seq": 3, "attempt": 1, **points}
    fields = fields_of(record)
    values = fields.values_in(record)
    theirs = tensorboard.message(record, fields, values, {}, step=step)
    assert tensorboard.encoded(record, fields, values, step=step) == theirs


@given(numbers=st.lists(NUMBERS, min_size=1))
def test_numbers_are_written_as_by_the_csv_module(numbers: list[float]) -> None:
    theirs = io.StringIO()
    csv.writer(theirs, lineterminator="").writerow(numbers)
    assert b",".join(shown(numbers)).decode() == theirs.getvalue()


@given(
    values=st.lists(
        st.dictionaries(
            st.text(max_size=3), st.one_of(NUMBERS, st.booleans(), st.none(), st.text()), max_size=4
        ),
        min_size=1,
    )
)
def test_rows_are_written_as_by_the_csv_module(values: list[dict[str, object]]) -> None:
    records: list[Record] = [
        {**of_one, "event": "step", "time": 1.5, "seq": seq, "attempt": 1, "global_step": seq}
        for seq, of_one in enumerate(values, start=1)
        for _ in range(2)
    ]
    with tempfile.TemporaryDirectory() as folder:
        ours = CsvFile(Path(folder) / "metrics.csv")
        ours.deliver(records)
        ours.close(None)
        written = (Path(folder) / "metrics.csv").read_bytes().decode()
    columns = next(csv.reader([written.partition("\n")[0]]))
    theirs = io.StringIO()
    writer = csv.DictWriter(theirs, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(row, records))
    assert written == theirs.getvalue()


@pytest.fixture(scope="module")
def record_writer() -> Any:
    """TensorBoard's own, imported by the one worker that needs it."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    return RecordWriter


@given(events=st.lists(st.binary(max_size=300)))
def test_event_is_framed_as_by_tensorboards_own_writer(record_writer: Any, events: list[bytes]) -> None:
    theirs = io.BytesIO()
    writer = record_writer(theirs)
    for event in events:
        writer.write(event)
    assert b"".join(map(framed, events)) == theirs.getvalue()


def test_events_are_read_from_the_end_up_to_a_tear(tmp_path: Path) -> None:
    events = [b"a", b"", b"c" * 20_000, b"d"]
    path = tmp_path / "events"
    whole = b"".join(map(framed, events))
    for cut in range(len(framed(b"d")) + 1):
        path.write_bytes(whole[: len(whole) - cut])
        intact = events if cut == 0 else events[:3]
        assert (cut, list(events_from_the_end(path))) == (cut, intact[::-1])
    path.write_bytes(whole[:-1] + b"?")
    assert list(events_from_the_end(path)) == events[2::-1]
    path.write_bytes(b"")
    assert list(events_from_the_end(path)) == []


@pytest.mark.parametrize("first", [BLOCK - 30, BLOCK - 14, BLOCK - 8, 3 * BLOCK])
def test_log_is_read_in_blocks_as_it_was_written(tmp_path: Path, first: int) -> None:
    """Records that end at a block's last bytes, cross one, and fill several."""
    records = [b"x" * (first - 7), b"y", b"", b"z" * 40, b"w" * (2 * BLOCK)]
    writer = LogWriter(tmp_path / "log", 0)
    writer.append(records)
    writer.close()
    found = list(read_log(tmp_path / "log"))
    assert [record.data for record in found] == records
    assert found[-1].end == os.stat(tmp_path / "log").st_size
    damaged = bytearray((tmp_path / "log").read_bytes())
    damaged[found[3].end - 1] ^= 1
    (tmp_path / "log").write_bytes(damaged)
    assert [record.data for record in read_log(tmp_path / "log")] == records[:3]
