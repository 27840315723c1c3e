"""The state and the last values of a run by the end of its journal alone, for lists of ten thousand runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import MEASURING, Record, as_number, attempt_of, fields_of, parse
from monitoring.journal.run_state import superseded
from monitoring.journal.series.rows import lost_names
from monitoring.journal.series.run_series import KINDS

# Some forty step records, and what stands between them.
LAST_BYTES = 16384

_STEP = b'{"event":"step"'
_NUMBER = re.compile(rb":[-+.\deE]+")


class LastValue(NamedTuple):
    """A metric as it was recorded last."""

    value: float
    """NaN if it was not finite."""
    step: int | None
    kind: str
    """Event of its record."""


@dataclass
class JournalEnd:
    """How a run stands, as far as the end of its journal goes."""

    values: dict[str, LastValue] = field(default_factory=dict)
    """Values by the names that RunSeries has. A metric that is recorded seldom may be missing."""
    status: str | None = None
    """How the newest attempt ended; None as long as it has not."""
    step: int | None = None
    """The newest attempt's last step, or the one that it resumed after."""
    time: float | None = None
    """Time of the newest record, UTC epoch seconds."""
    attempt: int = 0


def last_values(run_dir: Path) -> dict[str, LastValue]:
    """Return the last values of rank 0, by name as RunSeries has them, as far as the end of the journal goes.

    A metric that is recorded seldom may be missing, and the best value is known to who reads all: RunSeries.
    """
    return journal_end(run_dir / JOURNAL).values


def journal_end(journal: Path | str) -> JournalEnd:
    """Return the end of rank 0's journal; an empty one where there is none."""
    end, gone = JournalEnd(), list[range]()
    found: dict[str, dict[str, LastValue]] = {}
    for record in _newest_first(journal):
        event, attempt = str(record.get("event")), attempt_of(record)
        if end.time is None:
            end.time = as_number(record.get("time"))
        if event == "start":
            if attempt == end.attempt or not end.attempt:
                _begin(end, record, attempt)
            if superseding := superseded(record):
                gone.append(superseding)
        elif event in MEASURING:
            end.attempt = end.attempt or attempt
            if attempt == end.attempt:
                if event == "end" and end.status is None:
                    end.status = str(record.get("status"))
                elif event == "step" and end.step is None:
                    end.step = whole_step(record.get("global_step"))
            seq = record.get("seq")
            # Newest first, the start record that does steps again comes before the records of those steps.
            if not any(seq in them for them in gone):
                _take(record, event, found.setdefault(event, {}))
    end.values = _named(found)
    return end


def _begin(end: JournalEnd, start: Record, attempt: int) -> None:
    """Take the start record of the newest attempt."""
    end.attempt = attempt
    resumed = start.get("resumed_from")
    if end.step is None and isinstance(resumed, dict):
        end.step = whole_step(resumed.get("global_step"))


def _take(record: Record, event: str, found: dict[str, LastValue]) -> None:
    """Keep what no newer record of this kind has."""
    step = whole_step(record.get("global_step"))
    for name in fields_of(record).names:
        if name not in found:
            found[name] = LastValue(float(record[name]), step, event)  # type: ignore[arg-type]
    if record.get("nonfinite"):
        for name in lost_names(record):
            found.setdefault(name, LastValue(math.nan, step, event))


def _named(found: dict[str, dict[str, LastValue]]) -> dict[str, LastValue]:
    """The values by name; those of the kind that comes first have the plain name."""
    named: dict[str, LastValue] = {}
    for kind in KINDS:
        for name, value in found.get(kind, {}).items():
            named[name if name not in named else f"{name}@{kind}"] = value
    return named


def _newest_first(journal: Path | str) -> Iterator[Record]:
    """Yield the records at the end of a journal; of steps with as many fields as others the newest."""
    lines = _lines(journal)
    chosen, fields = list[bytes](), set[bytes]()
    for line in reversed(lines):
        if not line.startswith(_STEP):
            # where a later attempt has done steps again, those that count are not the newest ones
            if b'"supersedes":{' in line:
                chosen = lines[::-1]
                break
            chosen.append(line)
        # Metrics of steps come in few patterns (each step, each tenth …): what is left of a line without its
        # numbers tells them apart, and of each only the newest line is parsed.
        elif (names := _NUMBER.sub(b":", line)) not in fields:
            fields.add(names)
            chosen.append(line)
    for line in chosen:
        record = parse(line)
        if record is not None:
            yield record


def _lines(journal: Path | str) -> list[bytes]:
    """The complete lines at the end of a journal; none of one that does not exist."""
    try:
        file = os.open(journal, os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        begins = max(0, os.fstat(file).st_size - LAST_BYTES)
        lines = os.pread(file, LAST_BYTES, begins).split(b"\n")
    finally:
        os.close(file)
    # the first may be the rest of a line, and the last one is being written
    return lines[1 if begins else 0 : -1]
