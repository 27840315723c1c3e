"""TensorBoard: the points of a run as an event file in RUN/tensorboard, without torch.

Each record is one event, written with its length and checksum by one call. Its seq is in the event's
`source_metadata`, which TensorBoard shows nowhere. Values are rounded to 32 bits: TensorBoard's data server
shows no others. Each life of the follower has a file of its own: TensorBoard's readers end a file at its
first torn event and continue with the next, and one that has read a torn tail would fail at a repaired one.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitoring.follower import RunInfo
from monitoring.host.name import host_name, in_file_names
from monitoring.journal.files import ALL_SAMPLES, JOURNAL, journal_of_event, sample_event
from monitoring.journal.records import MOST_FIELDS, Fields, Record, alike, seq_of, time_of
from monitoring.no_options import NoOptions
from monitoring.trackers import (
    TrackerPoint,
    event_of,
    journal_metric,
    journal_of,
    require_package,
    shown_names,
    shown_texts,
    step_of,
    write_at,
)
from monitoring.trackers._event_file import events_from_the_end, framed
from monitoring.trackers._pictures import TrackerPicture, pictures_of
from monitoring.trackers._protobuf import delimited, varint

JOURNALS = (JOURNAL, *ALL_SAMPLES)

# DT_STRING of TensorFlow's types.proto.
DT_STRING = 7

# Field numbers of event.proto and summary.proto, each with its wire type: Event.wall_time, .step, .summary,
# .source_metadata, SourceMetadata.writer, Summary.value, Summary.Value.tag and .simple_value.
WALL_TIME, STEP, SUMMARY, SOURCE_METADATA, WRITER = b"\x09", b"\x10", b"\x2a", b"\x52", b"\x0a"
VALUE, TAG, SIMPLE_VALUE = b"\x0a", b"\x0a", b"\x15"

# Before the values of an event stand its time, its step, and the first value's name: see `_layout`.
FIRST_VALUE = 4

# Prefix of `source_metadata` in our events; seq and event follow.
SOURCE = "monitoring"

Options = NoOptions


def check(options: Options) -> None:
    """Raise MissingPackage if TensorBoard is not installed."""
    require_package("tensorboard")


def open_follower(run: RunInfo, options: Options) -> TensorboardFollower:
    """Deliver to event files of the run; MissingPackage if TensorBoard is not installed."""
    require_package("tensorboard")
    return TensorboardFollower(run)


class TensorboardFollower:
    """Appends each delivery to this life's event file with one write."""

    def __init__(self, run: RunInfo) -> None:
        self._run_directory = run.directory
        self._directory = run.directory / "tensorboard"
        seq, self._last_step = _last_event(self._directory, JOURNAL)
        self._last_seq = {JOURNAL: seq}
        self._fd: int | None = None
        self._size = 0

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the seq of the last intact event in the run's files that was made from that journal."""
        if journal not in self._last_seq:
            self._last_seq[journal] = _last_event(self._directory, journal)[0]
        return self._last_seq[journal]

    def deliver(self, records: Sequence[Record]) -> None:
        """Add one event for each record that has points or pictures.

        One without a step is at the last step before it.
        """
        out = bytearray()
        if self._fd is None:
            out += framed(_version(time_of(records[0])))
        last_step, last_seq = self._last_step, dict(self._last_seq)
        for fields, group in alike(records):
            if not fields.names and not fields.has_pictures:
                continue
            journal = journal_of(group[-1])
            for record in group:
                pictures = pictures_of(record, fields, self._run_directory)
                if not fields.names and not pictures:
                    continue
                step = step_of(record)
                if step is None:
                    step = last_step
                elif journal == JOURNAL:
                    last_step = step
                out += framed(encoded(record, fields, fields.values_in(record), pictures, step=step))
                last_seq[journal] = seq_of(record)
        self._write(bytes(out))
        # Only now that they are written: after an OSError the same records are delivered again.
        self._last_step, self._last_seq = last_step, last_seq

    def flush(self) -> None:
        """Bring the file to the disk."""
        if self._fd is not None:
            os.fsync(self._fd)

    def close(self, status: str | None) -> None:
        """Close the file; TensorBoard knows no end of a run."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        """Append to the file of this life; on OSError the file is as it was before."""
        if self._fd is None:
            self._directory.mkdir(exist_ok=True)
            # the life's number, so that the name sorts after those of earlier lives
            name = f"events.out.tfevents.{len(_files(self._directory)):010d}.{in_file_names(host_name())}"
            self._fd = os.open(self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        write_at(self._fd, data, self._size)
        self._size += len(data)


def read_back(run: RunInfo, options: Options) -> list[TrackerPoint]:
    """Return the points in the run's event files, read by TensorBoard's own loader; values have 32 bits."""
    require_package("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found: list[TrackerPoint] = []
    for path in _files(run.directory / "tensorboard"):
        for data in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(data)
            source = _source(event)
            if source is None:
                continue
            seq, kind = source
            step = None if kind == "end" else event.step
            for value in event.summary.value:
                if not value.HasField("simple_value"):  # a text or a picture
                    continue
                found.append(
                    TrackerPoint(seq, kind, step, journal_metric(value.tag, kind), value.simple_value)
                )
    return found


def _last_event(directory: Path, journal: str) -> tuple[int, int]:
    """Seq and step of the last intact event that was made from that journal, zeros without any."""
    from tensorboard.compat.proto.event_pb2 import Event

    mark = f":{event}".encode() if (event := sample_event(journal)) else b""
    for path in reversed(_files(directory)):
        # a run without such samples may have a million other events
        for data in events_from_the_end(path, having=mark):
            event = Event.FromString(data)
            source = _source(event)
            if source is not None and journal_of_event(source[1]) == journal:
                return source[0], event.step
    return 0, 0


def _source(event: Any) -> tuple[int, str] | None:
    """Seq and kind of the record that an event was made from, None of another writer's event."""
    source, _, rest = event.source_metadata.writer.partition(":")
    if source != SOURCE:
        return None
    seq, _, kind = rest.partition(":")
    return int(seq), kind


def encoded(
    record: Record,
    fields: Fields,
    values: Sequence[float],
    pictures: Sequence[TrackerPicture] = (),
    *,
    step: int,
) -> bytes:
    """The event of a record: the bytes that TensorBoard's message becomes, in a fraction of the time."""
    time, texts = time_of(record), shown_texts(record)
    if texts or pictures or not time or not values:
        return message(record, fields, values, texts, pictures, step=step)
    number = STEP + varint(step) if step else b""
    writer = f"{SOURCE}:{seq_of(record)}:{event_of(record)}".encode()
    form, cells = _layout(fields, len(number), len(writer))
    # the cached ones are shared by all events of this layout
    cells = cells.copy()
    cells[1], cells[2], cells[-1] = time, number, writer
    cells[FIRST_VALUE:-1:2] = values
    try:
        return form.pack(*cells)
    except (OverflowError, struct.error):  # beyond 32 bits, which the message makes infinite
        return message(record, fields, values, texts, step=step)


def message(
    record: Record,
    fields: Fields,
    values: Sequence[float],
    texts: Mapping[str, str],
    pictures: Sequence[TrackerPicture] = (),
    *,
    step: int,
) -> bytes:
    """Return the same event, made by TensorBoard's message."""
    from tensorboard.compat.proto.event_pb2 import Event

    event = Event(wall_time=time_of(record), step=step)
    event.source_metadata.writer = f"{SOURCE}:{seq_of(record)}:{event_of(record)}"
    for name, number in zip(shown_names(fields), values, strict=True):
        event.summary.value.add(tag=name, simple_value=number)
    for name, text in texts.items():
        value = event.summary.value.add(tag=name)
        value.tensor.dtype = DT_STRING
        value.tensor.string_val.append(text.encode())
        value.metadata.plugin_data.plugin_name = "text"
    for picture in pictures:
        image = event.summary.value.add(tag=picture.name).image
        image.width, image.height, image.colorspace = picture.width, picture.height, picture.channels
        image.encoded_image_string = picture.content
    found: bytes = event.SerializeToString()
    return found


@functools.lru_cache(maxsize=MOST_FIELDS)
def _layout(
    fields: Fields, step_length: int, writer_length: int
) -> tuple[struct.Struct, list[bytes | float]]:
    """Return the layout of events of records with the same fields, and what stands in all of them.

    Their cells are the time's tag, the time, the step, and for each value what stands before it (the first
    after the summary's tag and length) and the value; then what stands before the writer, and the writer.
    """
    heads = []
    for name in shown_names(fields):
        tag = delimited(TAG, name.encode()) if name else b""  # protobuf leaves an empty text out
        heads.append(VALUE + varint(len(tag) + len(SIMPLE_VALUE) + 4) + tag + SIMPLE_VALUE)
    heads[0] = SUMMARY + varint(sum(len(head) + 4 for head in heads)) + heads[0]
    writer = WRITER + varint(writer_length)
    heads.append(SOURCE_METADATA + varint(len(writer) + writer_length) + writer)
    values = "f".join(f"{len(head)}s" for head in heads)
    cells: list[bytes | float] = [WALL_TIME, 0.0, b""]
    for head in heads:
        cells += head, 0.0
    return struct.Struct(f"<cd{step_length}s{values}{writer_length}s"), cells


def _version(time: float) -> bytes:
    """Return the event that every file begins with."""
    from tensorboard.compat.proto.event_pb2 import Event

    encoded: bytes = Event(wall_time=time, file_version="brain.Event:2").SerializeToString()
    return encoded


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("events.out.tfevents.*"))
