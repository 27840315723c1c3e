"""The journals of a run that a follower takes, read as one by the times of their records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from monitoring.follower import journals_of
from monitoring.journal.files import JOURNAL, OF_AGENT, sample_event
from monitoring.journal.records import Record, kind_of, time_of
from monitoring.journal.tail import Tail

# Seconds between looks for journals of other hosts.
LOOK_FOR_HOSTS = 5.0


class JournalTails:
    """Reads the journals that a follower takes; those of other hosts as soon as they are there."""

    def __init__(self, directory: Path, follower: str) -> None:
        self.last: Record = {}
        """The last record of the training that was taken."""
        self._directory, self._follower = directory, follower
        self._next_look = 0.0
        self._tails = {one: Tail(directory / one) for one in journals_of(follower) if "*" not in one}
        self.new_hosts()

    @property
    def are_of_rank_0(self) -> bool:
        """Whether metrics.jsonl is the only journal to read."""
        return len(self._tails) == 1

    @property
    def have_more(self) -> bool:
        """Whether the last `take` stopped before the end of one."""
        return any(tail.has_more for tail in self._tails.values())

    @property
    def seqs(self) -> dict[str, int]:
        """The `seq` of the last record that was taken, by journal."""
        return {name: tail.seq for name, tail in self._tails.items()}

    @property
    def offset(self) -> int:
        """Byte offset in metrics.jsonl of the end of the last record that was taken."""
        return self._tails[JOURNAL].offset

    def seek(self, journal: str, seq: int, *, offset: int = 0) -> int:
        """Continue a journal after the record `seq`, as Tail.seek does; returns how many are gone."""
        return self._tails[journal].seek(seq, offset=offset)

    def look_at_once(self) -> None:
        """Have the next `new_hosts` look, however short ago the last look was."""
        self._next_look = 0.0

    def new_hosts(self, *, at_once: bool = False) -> list[str]:
        """Begin to read journals of other hosts that are new; return them. It looks now and then only."""
        if not at_once and time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_FOR_HOSTS
        new = [it for it in journals_in(self._directory, self._follower) if it not in self._tails]
        for journal in new:
            self._tails[journal] = Tail(self._directory / journal, event=sample_event(journal))
        return new

    def take(self, most: int, *, whatever_size: bool) -> list[Record]:
        """Return the next records of all journals by their times, at most `most` of each, in its order.

        Of a journal that has more, no record is overtaken by later ones of another.
        """
        for tail in self._tails.values():
            tail.fill(most, whatever_size=whatever_size)
        waiting = {name: tail for name, tail in self._tails.items() if tail.waiting}
        if len(waiting) == 1:
            batch = [record for tail in waiting.values() for record in tail.take_all()]
        else:
            batch = _merged(waiting)
        # samples and alerts may come after the end record, which must still be found
        own = (it for it in reversed(batch) if kind_of(it.get("event")) not in OF_AGENT)
        self.last = next(own, self.last)
        return batch

    def close(self) -> None:
        """Close all files; `seek` opens them again."""
        for tail in self._tails.values():
            tail.close()


def journals_in(directory: Path, name: str) -> list[str]:
    """The journals whose records the follower `name` takes, in the place of a glob those that there are."""
    found: list[str] = []
    for journal in journals_of(name):
        found += sorted(path.name for path in directory.glob(journal)) if "*" in journal else [journal]
    return found


def _merged(tails: Mapping[str, Tail]) -> list[Record]:
    """Take waiting records by time, up to where a journal with more to read may have an earlier one."""
    until = min((_latest(tail) for tail in tails.values() if tail.has_more), default=float("inf"))
    batch: list[Record] = []
    while True:
        first = sorted((time_of(tail.waiting[0]), name) for name, tail in tails.items() if tail.waiting)
        if not first or first[0][0] > until:
            return batch
        tail = tails[first[0][1]]
        batch.append(tail.take())
        others = first[1][0] if len(first) > 1 else float("inf")
        # many records of one journal in a row are the rule: no need to sort for each
        while tail.waiting and (time := time_of(tail.waiting[0])) < others and time <= until:
            batch.append(tail.take())


def _latest(tail: Tail) -> float:
    """Return the latest time of what waits: a clock that was set back holds up no later record."""
    return max(time_of(record) for record in tail.waiting)
