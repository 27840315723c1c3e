"""W&B's records, as wandb-core writes them into a transaction log: the head of a run, its rows, its end."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import getitem
from typing import Any

import orjson

from monitoring.follower import RunInfo
from monitoring.host.name import host_name
from monitoring.trackers._alerts import TrackerAlert
from monitoring.trackers._pictures import TrackerPicture
from monitoring.trackers._protobuf import delimited, varint

# W&B refuses longer names, and these characters in a project.
LONGEST_NAME = 128
NOT_IN_PROJECT = str.maketrans(dict.fromkeys("/\\#?%:", "-"))

# W&B's limit of an alert's title, and how long, in milliseconds, it sends no other of the same title: a year.
LONGEST_ALERT_TITLE = 63
ALERT_WAIT_MS = 365 * 24 * 3600 * 1000

# Prefix of the `uuid` of an alert's record; its seq follows.
ALERT_UUID = "alert-"

# Bytes of the longest number in JSON, -1.2345678901234567e-308, and some more.
LONGEST_NUMBER = 32

# Field numbers of wandb_internal.proto, each with its wire type: Record.num and HistoryStep.num,
# Record.history, HistoryRecord.item and .step, HistoryItem.nested_key and .value_json.
NUM, HISTORY, ITEM, STEP, NESTED_KEY, VALUE_JSON = b"\x08", b"\x12", b"\x0a", b"\x12", b"\x12", b"\x82\x01"


class Columns:
    """The layout of all rows whose numbers have the same names."""

    def __init__(self, names: Sequence[str], constant: Mapping[str, object]) -> None:
        """`constant` are the cells that are the same in all of them."""
        self._names = tuple(names)
        self._constant = dict(constant)
        self._begin = b"".join(_item(name, orjson.dumps(value)) for name, value in constant.items())
        self._before = [_before(name) for name in names]

    def encoded(self, numbers: Sequence[float]) -> bytes:
        """Return the encoded items of a row with these numbers."""
        texts = orjson.dumps(numbers)[1:-1].split(b",") if self._names else []
        before = map(getitem, self._before, map(len, texts))
        return self._begin + b"".join(chain.from_iterable(zip(before, texts, strict=True)))

    def row(self, numbers: Sequence[float]) -> dict[str, object]:
        """Return a row with these numbers."""
        return {**self._constant, **dict(zip(self._names, numbers, strict=True))}


class LogRecords:
    """W&B's records of one delivery, encoded; numbered after the `number` records that the log has."""

    def __init__(self, new: Callable[[], Any], number: int) -> None:
        """`new` makes an empty one of W&B's protobuf `Record`s."""
        self._new = new
        self.number = number
        self.encoded: list[bytes] = []
        self.defined: set[str] = set()

    def begin(self, run: RunInfo, *, entity: str, start: float, producer: str) -> None:
        """The head of a log: whose run this is, and what its charts have as their x axis."""
        record = self._new()
        record.header.version_info.producer = producer
        record.header.version_info.min_consumer = "0.70.0"
        self._add(record)
        record = self._new()
        record.run.run_id = run.run_id
        record.run.entity = entity
        record.run.project = run.project.translate(NOT_IN_PROJECT)[:LONGEST_NAME]
        record.run.display_name = run.name[:LONGEST_NAME]
        record.run.run_group = (run.group or "")[:LONGEST_NAME]
        record.run.host = host_name()
        record.run.start_time.FromNanoseconds(round(start * 1e9))
        for key, value in run.config.items():
            record.run.config.update.add(key=key, value_json=orjson.dumps(value).decode())
        self._add(record)
        record = self._new()
        record.metric.name = "global_step"
        record.metric.options.defined = True
        self._add(record)
        for name in ("event", "seq"):
            record = self._new()
            record.metric.name = name
            record.metric.options.defined = True
            record.metric.options.hidden = True
            self._add(record)

    def configuration(self, config: Mapping[str, object]) -> None:
        """The run's configuration, which a further attempt may have changed."""
        record = self._new()
        for key, value in config.items():
            record.config.update.add(key=key, value_json=orjson.dumps(value).decode())
        self._add(record)

    def define(self, name: str) -> None:
        """A metric, drawn over global_step."""
        record = self._new()
        record.metric.name = name
        record.metric.step_metric = "global_step"
        record.metric.options.defined = True
        record.metric.options.step_sync = True
        self._add(record)
        self.defined.add(name)

    def history(
        self, columns: Columns, numbers: Sequence[float], others: Mapping[str, object], *, step: int
    ) -> None:
        """A row of the run's table: its numbers, in the order of the columns, and its other cells.

        Most of a log is rows, and most of the time that a log takes would go into making W&B's messages: a
        row is encoded here, to the bytes that they become.
        """
        self.number += 1
        content = columns.encoded(numbers)
        for name, value in others.items():
            content += _item(name, orjson.dumps(value))
        number = NUM + varint(step)
        content += STEP + varint(len(number)) + number
        self.encoded.append(NUM + varint(self.number) + delimited(HISTORY, content))

    def summary(self, values: Mapping[str, object]) -> None:
        """The last value of each metric, which W&B's table of runs shows."""
        record = self._new()
        for name, value in values.items():
            record.summary.update.add(nested_key=[name], value_json=orjson.dumps(value).decode())
        self._add(record)

    def file(self, path: str) -> None:
        """A file of the run's folder `files`, to be uploaded, as wandb's `Media` has it (`_publish_file`)."""
        record = self._new()
        record.files.files.add(path=path)
        self._add(record)

    def alert(self, run_id: str, alert: TrackerAlert) -> None:
        """Add what `run.alert` records. Its title is of this alert alone, so that W&B sends it once.

        W&B sends no second one of a title within `wait_duration`, and each `wandb sync` of a log begins with
        its first record.
        """
        record = self._new()
        record.uuid = f"{ALERT_UUID}{alert.seq}"
        own = f" ({run_id[:8]}-{alert.seq})"
        record.alert.title = alert.title[: LONGEST_ALERT_TITLE - len(own)] + own
        record.alert.text = alert.text + (f" (step {alert.step})" if alert.step is not None else "")
        record.alert.level = alert.level.upper()
        record.alert.wait_duration = ALERT_WAIT_MS
        self._add(record)

    def exit(self, code: int) -> None:
        """The end of the run."""
        record = self._new()
        record.exit.exit_code = code
        self._add(record)

    def _add(self, record: Any) -> None:
        self.number += 1
        record.num = self.number
        self.encoded.append(record.SerializeToString())


def media_cell(picture: TrackerPicture, *, step: int) -> dict[str, object]:
    """Return the cell of a picture in a row, as `wandb.Image` makes it of a file."""
    sha256 = hashlib.sha256(picture.content).hexdigest()
    return {
        "_type": "image-file",
        "sha256": sha256,
        "size": len(picture.content),
        "path": f"media/images/{picture.file_name}_{step}_{sha256[:20]}.png",
        "format": "png",
        "width": picture.width,
        "height": picture.height,
    }


@functools.lru_cache(maxsize=4096)
def _before(name: str) -> list[bytes]:
    """Return what precedes a number of that name in a row, for each length that its JSON can have."""
    zeros = [b"0" * length for length in range(1, LONGEST_NUMBER + 1)]
    return [b"", *(_item(name, json)[: -len(json)] for json in zeros)]


def _item(name: str, json: bytes) -> bytes:
    return delimited(ITEM, _named(name) + varint(len(json)) + json)


@functools.lru_cache(maxsize=4096)
def _named(name: str) -> bytes:
    """Return what precedes the value in an item: its name."""
    return delimited(NESTED_KEY, name.encode()) + VALUE_JSON


def is_row(record: bytes) -> bool:
    """Whether an encoded record is one of `LogRecords.history`: its number comes first, then the row."""
    at = len(NUM)
    while record[at : at + 1] >= b"\x80":
        at += 1
    return record[at + 1 : at + 2] == HISTORY


def alert_seq(record: Any) -> int | None:
    """Return the seq of the alert in a record, None of another kind of record."""
    return int(record.uuid.removeprefix(ALERT_UUID)) if record.HasField("alert") else None


def row_of(record: Any) -> dict[str, Any] | None:
    """Return the columns of a history record, None of another kind of record."""
    if not record.HasField("history"):
        return None
    return {item.nested_key[0]: orjson.loads(item.value_json) for item in record.history.item}
