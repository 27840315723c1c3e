"""Tells which attempts of a run made its present state, and which of its records still count.

An attempt that resumes from a checkpoint, or starts from scratch, says so in its start record:
`resumed_from` (null for one from scratch) and `supersedes`, the range of `seq` whose measurements it does
again. The lineage of a run is its last attempt that started from scratch and those that resumed after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from pathlib import Path

from monitoring.journal.end_status import COMPLETE
from monitoring.journal.records import MEASURING, Record, parse, read_records
from monitoring.journal.run_state import RunState, superseded


class Lineage:
    """The attempts that made a run what it is now; empty, until they are read from its journal."""

    def __init__(self) -> None:
        self.starts: Sequence[Record] = ()
        """Start records, the one from scratch first; empty for a run without any."""
        self.checkpoints: Mapping[str, int] = {}
        """The `seq` of the record of each checkpoint that counts, by its file name."""
        self.changes: Sequence[Record] = ()
        """The control_change records of these attempts, each change once; also of steps done again."""
        self.end: Record = {}
        """The end record of the last attempt, empty if it has none."""
        self.last_seq = 0
        self.last_seq_of: Mapping[int, int] = {}
        """The last `seq` of each attempt."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as of what it holds

    @classmethod
    def read(cls, journal: Path) -> Lineage:
        """Return the lineage in a journal; empty if there is no journal."""
        state, starts = RunState(), list[Record]()
        checkpoints: dict[str, int] = {}
        changes: dict[tuple[int, str], Record] = {}
        last_seq_of: dict[int, int] = {}
        for record, _ in read_records(journal):
            gone, event = state.update(record), record.get("event")
            last_seq_of[_integer(record, "attempt")] = state.last_seq
            if event == "start":
                # checkpoints of steps that this attempt does again hold other weights than it will have
                checkpoints = {name: seq for name, seq in checkpoints.items() if seq not in gone}
                if not record.get("resumed_from"):
                    starts.clear()
                    changes.clear()
                starts.append(record)
            elif event == "control_change":
                changes[_integer(record, "global_step"), str(record.get("control"))] = record
            elif event == "checkpoint":
                checkpoints[Path(str(record.get("checkpoint_path"))).name] = state.last_seq
        found = cls()
        found.starts, found.checkpoints, found.end = tuple(starts), checkpoints, state.end
        found.changes = tuple(changes[key] for key in sorted(changes, key=itemgetter(0)))
        found.last_seq, found.last_seq_of = max(last_seq_of.values(), default=0), last_seq_of
        return found

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be trained."""
        return self.end.get("status") == COMPLETE

    def has_attempt(self, attempt: int) -> bool:
        return any(start.get("attempt") == attempt for start in self.starts)

    def has_lost(self, attempt: int, seq: int) -> bool:
        """Whether the journal of an attempt ends before `seq`, as after a crash of a full disk."""
        return seq > self.last_seq_of.get(attempt, 0)

    def has_superseded(self, attempt: int, seq: int) -> bool:
        """Whether a later attempt resumed from before the record `seq` of an attempt."""
        later = (start for start in self.starts if _integer(start, "attempt") > attempt)
        return any(seq >= gone.start for start in later if (gone := superseded(start)))


def counting(records: Iterable[Record]) -> list[Record]:
    """The records without the measurements that a later attempt did again; start and gap records all stay."""
    kept: list[Record] = []
    for record in records:
        if record.get("event") == "start":
            gone = superseded(record)
            kept = [
                old for old in kept if old.get("event") not in MEASURING or _integer(old, "seq") not in gone
            ]
        kept.append(record)
    return kept


def counting_in(journal: Path, last_seq: int | None = None) -> Iterator[Record]:
    """Yield what `counting` keeps of a journal, up to a `seq`: read twice, for a long one takes gigabytes."""

    def is_early(record: Record) -> bool:
        return last_seq is None or _integer(record, "seq") <= last_seq

    ranges = [gone for start in start_records(journal) if is_early(start) and (gone := superseded(start))]
    for record in takewhile(is_early, (record for record, _ in read_records(journal))):
        seq = _integer(record, "seq")
        if record.get("event") not in MEASURING or not any(seq in gone for gone in ranges):
            yield record


def start_records(journal: Path) -> Iterator[Record]:
    """Yield the start records of a journal."""
    return (record for record, _ in start_records_with_ends(journal))


def start_records_with_ends(journal: Path) -> Iterator[tuple[Record, int]]:
    """Yield them with the offsets of their ends; to parse all of a long journal takes most of the time."""
    end = 0
    with contextlib.suppress(FileNotFoundError), journal.open("rb") as file:
        for line in file:
            end += len(line)
            if b'"start"' in line and line.endswith(b"\n"):
                record = parse(line)
                if record is not None and record.get("event") == "start":
                    yield record, end


def superseding(journal: Path, resumed_step: int) -> dict[str, int] | None:
    """Return the `seq` range that an attempt resuming after a step (0: scratch) supersedes; None if empty."""
    # all after the last measurement up to that step, also what stands between later ones
    last = done = 0
    for record in counting_in(journal):
        last = _integer(record, "seq")
        if record.get("event") in MEASURING and 0 < _integer(record, "global_step") <= resumed_step:
            done = last
    return {"first_seq": done + 1, "last_seq": last} if done < last else None


def _integer(record: Record, name: str) -> int:
    value = record.get(name)
    return value if isinstance(value, int) else 0
