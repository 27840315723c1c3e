"""The records of a journal that are no steps: starts, evaluations, checkpoints, ends; of millions a few."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from monitoring.journal.records import Record, parse
from monitoring.journal.run_state import superseded

# Bytes that are searched at a time, which stay in the cache: a file that is cut meanwhile is no error, as it
# would be if mapped.
CHUNK = 2**16

# No journal has a longer line.
LONGEST = 2**24

# Records that are kept; of more, the oldest go.
MOST_KEPT = 20_000

# Journals have `event` first; lines that have not are looked into.
_OWN_STEP = b'{"event":"step"'
_STEP = (_OWN_STEP, b'{"event": "step"')


class SparseRecords:
    """The records of one journal but steps; `refresh` takes in what is new, from a byte offset."""

    def __init__(self, path: Path, *, until: int | None = None) -> None:
        """`until` is a byte offset, if the journal is to be read no further."""
        self.records: list[Record] = []
        """Those that count: what a resumed attempt did again is left out. Starts and changes all stay."""
        self._path = path
        self._offset = 0
        self._inode = 0
        self._until = until

    def refresh(self) -> None:
        """Take in the new records; one that was cut or replaced is read from its start."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self.records = []
            return
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self.records, self._offset, self._inode = [], 0, status.st_ino
            file.seek(self._offset)
            rest = b""
            while chunk := file.read(self._room(file.tell())):
                text = rest + chunk
                end = text.rfind(b"\n") + 1
                for record in sparse(text[:end]):
                    self._take(record)
                rest, self._offset = text[end:], self._offset + end
                if len(rest) > LONGEST:
                    break

    def _room(self, place: int) -> int:
        return CHUNK if self._until is None else max(0, min(CHUNK, self._until - place))

    def _take(self, record: Record) -> None:
        if record.get("event") == "step":
            return
        gone = superseded(record) if record.get("event") == "start" else ()
        if gone:
            lasting = ("start", "gap", "control_change", "control_refused")
            self.records = [
                one for one in self.records if one.get("event") in lasting or one.get("seq") not in gone
            ]
        self.records.append(record)
        if len(self.records) > MOST_KEPT:
            del self.records[1 : len(self.records) - MOST_KEPT + 1]


def sparse(lines: bytes) -> Iterator[Record]:
    """Yield the records in complete lines, but those of steps, which are not even parsed."""
    steps = lines.startswith(_OWN_STEP) + lines.count(b"\n" + _OWN_STEP)
    if steps == lines.count(b"\n"):  # counting takes a third of the time of a look at each line
        return
    for line in lines.split(b"\n"):
        if line and not line.startswith(_STEP) and (record := parse(line)) is not None:
            yield record
