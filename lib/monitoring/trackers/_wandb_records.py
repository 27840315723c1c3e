"""W&B's records, as wandb-core writes them into a transaction log: the head of a run, its rows, its end."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from monitoring.follower import RunInfo

# W&B refuses longer names, and these characters in a project.
LONGEST_NAME = 128
NOT_IN_PROJECT = str.maketrans(dict.fromkeys("/\\#?%:", "-"))


# Field numbers of wandb_internal.proto, each with its wire type: Record.num and HistoryStep.num,
# Record.history, HistoryRecord.item and .step, HistoryItem.nested_key and .value_json.
NUM, HISTORY, ITEM, STEP, NESTED_KEY, VALUE_JSON = b"\x08", b"\x12", b"\x0a", b"\x12", b"\x12", b"\x82\x01"


class LogRecords:
    """W&B's records of one delivery, encoded; numbered behind the `number` records that the log has."""

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
        record.run.host = platform.node()
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

    def history(self, row: Mapping[str, Any]) -> None:
        """A row of the run's table.

        Most of a log is rows, and most of the time that a log takes would go into making W&B's messages: a
        row is encoded here, to the bytes that they become (developers.google.com/protocol-buffers, encoding).
        """
        self.number += 1
        content = bytearray()
        for name, value in row.items():
            json = orjson.dumps(value)
            item = _named(name) + varint(len(json)) + json
            content += ITEM + varint(len(item)) + item
        step = NUM + varint(row["_step"])
        content += STEP + varint(len(step)) + step
        self.encoded.append(NUM + varint(self.number) + HISTORY + varint(len(content)) + bytes(content))

    def summary(self, values: Mapping[str, object]) -> None:
        """The last value of each metric, which W&B's table of runs shows."""
        record = self._new()
        for name, value in values.items():
            record.summary.update.add(nested_key=[name], value_json=orjson.dumps(value).decode())
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


def varint(number: int) -> bytes:
    """A number in protobuf's variable length, 7 bits a byte, the lowest first."""
    if number < 128:
        return _SHORT[number]
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


_SHORT = [bytes([number]) for number in range(128)]


@functools.lru_cache(maxsize=4096)
def _named(name: str) -> bytes:
    """What stands in an item before its value: its name."""
    encoded = name.encode()
    return NESTED_KEY + varint(len(encoded)) + encoded + VALUE_JSON


def row_of(record: Any) -> dict[str, Any] | None:
    """The columns of a history record, None of another kind of record."""
    if not record.HasField("history"):
        return None
    return {item.nested_key[0]: orjson.loads(item.value_json) for item in record.history.item}
