"""One growing journal read into tables, in slices of time."""

from __future__ import annotations

import contextlib
import math
import os
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, BinaryIO

from monitoring.gpu.aggregates import gpu_points
from monitoring.journal.encoding.global_step import FIRST_STEP, LAST_STEP, whole_step
from monitoring.journal.records import (
    MEASURING,
    Record,
    as_number,
    attempt_of,
    last_record,
    parse,
    parsed,
    seq_of,
    time_of,
)
from monitoring.journal.run_state import RunState
from monitoring.journal.series.rows import Rows
from monitoring.journal.series.table import BLOCK, SeriesTable
from monitoring.journal.tail import Tail, first_place, inode_and_size

# Bytes that are read at a time: they fit into the second-level cache with what is parsed of them.
BATCH = 2**16

# A journal that is longer (some 2,000 records, 5 ms) is sampled before it is read, at so many places, in
# stretches of so many bytes.
LONG = 2**19
PLACES = 600
STRETCH = 4096
# Bytes at its end that are read for the sample: its last values are true ones.
LAST_BYTES = 2**16

# Bytes before the place that is read to, by which a journal that was written anew is known.
MARK = 64

# Samples that are taken from a rotated journal at a time.
SAMPLES_AT_A_TIME = 512


_DAMAGED: Record = {}
"""For a line that holds no record."""


class TrainingJournal:
    """The journal of a rank: records that measure, without those that a later attempt does again."""

    def __init__(self, path: Path, *, whole: Sequence[str] | None = None, attempt: int | None = None) -> None:
        """`whole` are metrics of steps, if all rows of these, and of no others, are to be held.

        With an `attempt` the journal is read up to the next one.
        """
        self.path = path
        self.tables: dict[str, SeriesTable] = {}
        """Event -> its records that measure."""
        self._whole = whole
        self._attempt = attempt
        self.state = RunState()
        """The state of the run by all records but those of steps."""
        self.nonfinite = array("q")
        """`seq` of the records that count in which a value was NaN or infinite."""
        self.began: float | None = None
        """Time of the first record, UTC epoch seconds."""
        self.generation = 0
        """Grows when the journal was cut, replaced or removed, and is read anew."""
        self.version = 0
        """Grows when the tables have changed."""
        self._begin()

    def _begin(self) -> None:
        self.tables, self.state, self.nonfinite, self.began = {}, RunState(), array("q"), None
        self._gone: list[range] = []
        self._offset, self._inode, self._mark = 0, 0, b""
        self._step = 0
        self._is_sampled = False

    def read(self, until: float, *, places: int = PLACES) -> bool:
        """Read what is new until a monotonic time; True while more is left. OSError of the file.

        The first look at a long journal takes samples at so many `places`, and reads nothing else.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            if self._inode:
                self._renew()
            return False
        with file:
            status = os.fstat(file.fileno())
            if self._inode and (status.st_ino != self._inode or not self._continues(file, status.st_size)):
                self._renew()
            self._inode = status.st_ino
            size = self._end_of_attempt(file, status.st_size)
            if self._offset == 0 and not self._is_sampled and size > LONG and until < math.inf:
                self._is_sampled = True
                self._sample(file, size, places)
                self.version += 1
                return True
            return self._read_on(file, until, size)

    @property
    def is_only_sampled(self) -> bool:
        """Whether nothing else than samples was read."""
        return self._is_sampled and self._offset == 0

    def _end_of_attempt(self, file: BinaryIO, size: int) -> int:
        """Where the attempt that is asked for ends, or the journal."""
        last = self._attempt
        if last is None:
            return size
        place = first_place(file, lambda record: attempt_of(record) > last)
        return size if place is None else place

    def _continues(self, file: BinaryIO, size: int) -> bool:
        mark = self._mark
        return size >= self._offset and os.pread(file.fileno(), len(mark), self._offset - len(mark)) == mark

    def _renew(self) -> None:
        self._begin()
        self.generation += 1
        self.version += 1

    def _read_on(self, file: BinaryIO, until: float, size: int) -> bool:
        file.seek(self._offset)
        while True:
            lines = file.readlines(BATCH)
            while self._attempt is not None and lines and file.tell() > size:
                # lines of the next attempt, of which a batch may have read some
                file.seek(-len(lines.pop()), os.SEEK_CUR)
            if lines and not lines[-1].endswith(b"\n"):  # torn, or being written
                lines.pop()
            if lines:
                self._take(lines)
            for table in self.tables.values():
                table.read_to(self._offset if lines else None)
            if not lines or time.monotonic() >= until:
                return bool(lines)

    def _take(self, lines: Sequence[bytes]) -> None:
        offsets = list(accumulate(map(len, lines), initial=self._offset))
        records = [record or _DAMAGED for record in parsed(lines)]
        self._offset, self._mark = offsets[-1], lines[-1][-MARK:]
        if self.began is None:
            self.began = next(filter(None, map(time_of, records)), None)
        for event, first, end in _alike(records):
            part = records[first:end]
            for record, offset in zip(part, offsets[first:end], strict=True) if event != "step" else ():
                self._note(record, offset)
            self.nonfinite.extend([seq_of(record) for record in part if record.get("nonfinite")])
            if event in MEASURING:
                self._add(event, part, offsets[first:end])
        self.version += 1

    def _note(self, record: Record, offset: int) -> None:
        """Take a record that is no step: of a start record what a later attempt does again."""
        if gone := self.state.update(record):
            self._gone.append(gone)
            # before the cut: afterwards the tables know no record behind it
            behind = [table.offset_from(gone.stop) for table in self.tables.values()]
            del self.nonfinite[bisect_left(self.nonfinite, gone.start) :]
            for table in self.tables.values():
                table.cut(gone.start)
            if kept := [place for place in behind if place is not None]:
                self._take_again(min(kept), offset, gone.stop)

    def _take_again(self, begins: int, ends: int, seq: int) -> None:
        """Take what stands behind records that are done again: a source that was late is not, as far."""
        with self.path.open("rb") as file:
            lines = os.pread(file.fileno(), ends - begins, begins).splitlines(keepends=True)
        offsets = accumulate(map(len, lines), initial=begins)
        read = [(record or _DAMAGED, offset) for record, offset in zip(parsed(lines), offsets, strict=False)]
        kept = [
            (record, offset)
            for record, offset in read
            if record.get("event") in MEASURING and seq_of(record) >= seq and not self._is_gone(record)
        ]
        records = [record for record, _ in kept]
        self.nonfinite.extend([seq_of(record) for record in records if record.get("nonfinite")])
        for event, first, end in _alike(records):
            self._add(event, records[first:end], [offset for _, offset in kept[first:end]])

    def _add(self, event: str, records: list[Record], offsets: list[int]) -> None:
        records, steps, offsets = _with_steps(event, records, offsets, self._step)
        if not records:
            return
        self._step = steps[-1]
        table = self.tables.get(event)
        if table is None:
            chosen = self._whole if event == "step" else None
            table = SeriesTable(self._reader(event), names=chosen, whole=self._whole is not None)
            self.tables[event] = table
        table.append(records, steps, offsets)

    def _reader(self, event: str) -> Callable[[SeriesTable, int, int], Rows]:
        def read(table: SeriesTable, first: int, end: int) -> Rows:
            return self._again(event, table, first, end)

        return read

    def _again(self, event: str, table: SeriesTable, first: int, end: int) -> Rows:
        """The rows of some blocks; fewer if the journal has been cut meanwhile."""
        rows, begins, wanted = Rows(), table.offsets[first], (end - first) * BLOCK
        stop = table.offsets[end] if end < table.num_blocks else (table.rows.offsets or [self._offset])[0]
        try:
            with self.path.open("rb") as file:
                text = os.pread(file.fileno(), stop - begins, begins)
        except OSError:
            return rows
        lines = text.splitlines(keepends=True)
        offsets = list(accumulate(map(len, lines), initial=begins))
        # Parsing takes most of the time, so only lines that name the event somewhere are parsed; what stood
        # in another field is left out afterwards.
        named = f'"{event}"'.encode()
        chosen = [row for row, line in enumerate(lines) if named in line]
        read = parsed([lines[row] for row in chosen])
        counts = [place for place, record in enumerate(read) if record and record.get("event") == event]
        if self._gone:
            counts = [place for place in counts if not self._is_gone(read[place] or _DAMAGED)]
        records = [read[place] or _DAMAGED for place in counts[:wanted]]
        rows.extend(*_with_steps(event, records, [offsets[chosen[place]] for place in counts[:wanted]], 0))
        return rows

    def _is_gone(self, record: Record) -> bool:
        return any(record.get("seq") in gone for gone in self._gone)

    def _sample(self, file: BinaryIO, size: int, places: int) -> None:
        """Take some of the records of a long journal, at even distances, and all at its end."""
        found: dict[str, list[tuple[Record, int]]] = {}
        step, last = 0, size - LAST_BYTES
        if hasattr(os, "posix_fadvise"):  # the kernel would read 128 kB at each place
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        # no nearer than a stretch is long, so that none reads a record twice
        for place in [*range(0, last, max(STRETCH, size // places)), last]:
            text = os.pread(file.fileno(), LAST_BYTES if place == last else STRETCH, place)
            lines = text.splitlines(keepends=True)
            offsets = list(accumulate(map(len, lines), initial=place))
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
            # the first is the rest of a line
            chosen = range(1 if place else 0, len(lines))
            for row in chosen if place == last else _first_of_their_kind(lines, chosen):
                record = parse(lines[row]) or _DAMAGED
                event = str(record.get("event"))
                if event in MEASURING:
                    found.setdefault(event, []).append((record, offsets[row]))
                    step = _step_of(record) or step
                elif event == "start" and place == 0:
                    self.state.start, self.began = record, as_number(record.get("time"))
        for event, read in found.items():
            kept = _rising(read)
            table = self.tables[event] = SeriesTable(self._reader(event))
            table.sample = Rows()
            some = _with_steps(event, [record for record, _ in kept], [offset for _, offset in kept], step)
            table.sample.extend(*some)


class SampleJournal:
    """The samples of a host, in files that are rotated and compressed."""

    is_only_sampled = False

    def __init__(self, path: Path, event: str) -> None:
        self.path = path
        self.tables: dict[str, SeriesTable] = {}
        self.generation = 0
        self.version = 0
        self._event = event
        self._seq = 0
        self._newest = (0, 0)  # inode and size of the newest file when it was read to its end

    def read(self, until: float, *, places: int = 0) -> bool:
        """Read what is new, as a TrainingJournal does; no file stays open between two looks."""
        newest = inode_and_size(self.path)
        if newest == self._newest:
            return False
        # another file under this name is mostly the next one of a rotation, which counts on; one that counts
        # from the beginning is a journal that was written anew
        if newest[0] != self._newest[0] and seq_of(last_record(self.path) or {}) < self._seq:
            self.tables, self._seq = {}, 0
            self.generation += 1
        with contextlib.closing(Tail(self.path)) as tail:
            tail.seek(self._seq)
            while True:
                tail.fill(SAMPLES_AT_A_TIME)
                more, records = tail.has_more, tail.take_all()
                if records:
                    self._seq = tail.seq
                    self._add(records)
                if not more:
                    self._newest = newest
                    return False
                if time.monotonic() >= until:
                    return True

    def _add(self, records: Sequence[Record]) -> None:
        self.version += 1
        table = self.tables.setdefault(self._event, SeriesTable(self._again))
        records = _samples(records, self._event)
        table.append(records, [_step_of(record) for record in records], [0] * len(records))

    def _again(self, table: SeriesTable, first: int, end: int) -> Rows:
        rows = Rows()
        with contextlib.closing(Tail(self.path)) as tail:
            tail.seek(table.seqs[first] - 1)
            tail.fill((end - first) * BLOCK)
            records = _samples(tail.take_all(), self._event)
        rows.extend(records, [_step_of(record) for record in records], [0] * len(records))
        return rows


def _samples(records: Iterable[Record], event: str) -> list[Record]:
    """Samples with their points on top, as the records of a training have them."""
    found = [record for record in records if record.get("event") == event]
    if event != "gpu":
        return found
    kept = ("time", "seq", "global_step")
    samples = []
    for record in found:
        with contextlib.suppress(KeyError, TypeError, AttributeError):  # a sample of somebody else's making
            samples.append({**{name: record.get(name) for name in kept}, **gpu_points(record)})
    return samples


def _first_of_their_kind(lines: Sequence[bytes], rows: Iterable[int]) -> Iterator[int]:
    """The rows of lines whose first field, the event, is not that of the line before."""
    before = b""
    for row in rows:
        line = lines[row]
        kind = line[: line.find(b",")]
        if kind != before:
            yield row
        before = kind


def _alike(records: Sequence[Record]) -> Iterator[tuple[str, int, int]]:
    """The first and the end of each stretch of records that are of one event."""
    events = [record.get("event") for record in records]
    end = 0
    for event, group in groupby(events):
        first, end = end, end + len(list(group))
        yield str(event), first, end


def _with_steps(
    event: str, records: list[Record], offsets: list[int], step: int
) -> tuple[list[Record], array[int], list[int]]:
    """The records that stand at a step, their steps and offsets; an end stands at the step before it."""
    steps: list[Any] = [record.get("global_step") for record in records]
    if event == "end":
        steps = [it if type(it) is int else step for it in steps]
    with contextlib.suppress(TypeError, OverflowError):
        return records, array("q", steps), offsets
    kept = [row for row, it in enumerate(steps) if isinstance(it, int) and FIRST_STEP <= it <= LAST_STEP]
    rest = array("q", [steps[row] for row in kept])
    return [records[row] for row in kept], rest, [offsets[row] for row in kept]


def _rising(read: Sequence[tuple[Record, int]]) -> list[tuple[Record, int]]:
    """Sampled records that no later one does again, as after a resume; exact to within their distance."""
    kept: list[tuple[Record, int]] = []
    # from the end: a later record at the same step, or at an earlier one, is that of the resume
    for record, offset in reversed(read):
        later = kept[-1][0] if kept else None
        if later is None or (_step_of(record), seq_of(record)) < (_step_of(later), seq_of(later)):
            kept.append((record, offset))
    return kept[::-1]


def _step_of(record: Record) -> int:
    return whole_step(record.get("global_step")) or 0
