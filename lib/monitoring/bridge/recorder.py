"""Turns what sources report into records of one run: every value once, whatever was killed in between.

Each record says what it was reported by, in its field `reported`: `by` is the kind of source, `source` its
number in bridge.json, `place` its position in there, and `read` when it was read. So the journal alone tells
where to read on. A record that stands in for one that was lost has no `place`.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from monitoring.bridge.left_out import LeftOut, LeftOutValue
from monitoring.bridge.source import Reported
from monitoring.bridge.sources import RICHEST, richness
from monitoring.callbacks.logged import MOST_NAMES, has_step, record, recorded_name
from monitoring.journal.encoding.global_step import as_step
from monitoring.journal.records import ENVELOPE, MOST_FIELDS, Record, as_number, read_records, seq_of
from monitoring.journal.run_state import is_undecided

REPORTED = "reported"
# Fields of it: of a value that is not recorded from its usual source, the kind of that one; of a value of an
# earlier attempt, the number of its first record.
INSTEAD_OF, COPY_OF = "instead_of", "copy_of"

# Seconds that a metric waits for a richer source that may report it too: where a search finds none, as stores
# are made before the first value; where there is one or is to be one, for W&B's log is 0.5 s late; and while
# there is one that has not reported anything yet.
SETTLE_ALONE, SETTLE, SETTLE_LONG = 1.0, 5.0, 30.0
# Seconds without another value after which those of one step are a record.
TOGETHER = 1.0


class Followed:
    """How far a source has been recorded, and what it had to say."""

    def __init__(self, number: int, kind: str, *, read_to: int = 0) -> None:
        self.number = number
        """In bridge.json."""
        self.kind = kind
        self.place = 0
        """Everything up to here is in the journal."""
        self.read_to = read_to
        """Everything up to here is in the journal or waits."""
        self.skip = 0
        """Records after `place` that were written before the writer was killed."""
        self.seq = 0
        """The last record of it before this attempt."""
        self.names: dict[str, None] = {}
        """Metrics that are recorded from it."""
        self.left_out: dict[str, str] = {}
        """Metrics that another kind of source reports too -> that kind."""
        self.latest = 0.0
        """Seconds from the last value's own time to when it was read."""
        self.steps = 0
        """The highest step; what has none is counted on from there."""
        self.waiting: deque[tuple[Reported, float]] = deque()
        self.group: list[tuple[Reported, float]] = []


class Recording(Protocol):
    """A run, or an attempt of one, that takes the records."""

    def relay(self, event: str, global_step: int | None, at: float, fields: Mapping[str, object]) -> None: ...


class Recorder:
    """Records what the sources of one program report."""

    def __init__(
        self, run: Recording, kinds: Mapping[int, str], is_expected: Callable[[], bool] = lambda: False
    ) -> None:
        """`kinds` are those of the sources that earlier attempts have read, by number.

        `is_expected` says whether there is to be another source that has not been found.
        """
        self._run = run
        self._is_expected = is_expected
        self.sources = {number: Followed(number, kind) for number, kind in kinds.items()}
        self._owners: dict[str, str] = {}  # metric -> the kind of source that it is recorded from
        self._first_seen: dict[str, float] = {}
        self._candidates: dict[str, set[str]] = {}
        self.last_step = 0
        self.first_step: int | None = None
        """The lowest step that any attempt has reported: 0 where the program counts from there."""
        self.count = 0
        """Records that were written."""
        self.has_ended = False
        """Whether the attempt before has read its sources to their end."""
        self.last_seq = 0
        """The last record before this attempt."""
        self._highest = 0
        """The highest step of all attempts: an attempt that has said none yet stands there."""
        self._tested: dict[str, float] = {}
        """Last values on the test split, by name."""
        self.left_out = LeftOut()

    def recover(self, journal: Path) -> None:
        """Find out what of the sources is in the journal already."""
        # The last record of a step has the place up to which its source was read. Records behind the last
        # place are of a step that was cut off: it is read once more, less those (`skip`).
        partly: dict[int, int] = {}
        for found, _ in read_records(journal):
            mark, self.last_seq = found.get(REPORTED), seq_of(found)
            self.has_ended = found.get("event") == "end" and mark is None
            step = as_step(found.get("global_step"))
            self._see(str(found.get("event")), step, found)
            if found.get("event") == "start" and is_undecided(found):
                self.left_out.begin_attempt()
            if not isinstance(mark, dict) or not isinstance(number := mark.get("source"), int):
                continue
            if COPY_OF in mark:
                continue
            metrics = _metrics(tuple(found))
            for name, metric in metrics:
                self.left_out.count(metric, step, found[name])
            if INSTEAD_OF in mark:
                continue
            if (progress := self.sources.get(number)) is None:
                progress = self.sources[number] = Followed(number, str(mark.get("by")))
            place, progress.seq = mark.get("place"), self.last_seq
            if isinstance(place, int):
                progress.place = progress.read_to = place
                partly[number] = 0
            else:
                partly[number] = partly.get(number, 0) + 1
            for _, metric in metrics:
                self._owners.setdefault(metric, progress.kind)
        for number, count in partly.items():
            self.sources[number].skip = count

    def done(self) -> dict[str, float]:
        """Return what the end record has: how far this attempt came, if it said a step, and test metrics."""
        if self.first_step is None or not self.count:
            return self._tested
        # counted from 0, the step with number n is the one after n others
        steps_done = self.last_step + (self.first_step == 0)
        return {"first_step": self.first_step, "steps_done": steps_done, **self._tested}

    def _see(self, event: str, step: int | None, fields: Mapping[str, object]) -> None:
        if event == "step" and step is not None:
            self.first_step = step if self.first_step is None else min(step, self.first_step)
            self._highest = max(step, self._highest)
        if event == "eval" and fields.get("split") == "test":
            self._tested |= {
                name: value
                for name, value in fields.items()
                if name.startswith("test_") and isinstance(value, (int, float))
            }

    def take(self, progress: Followed, reported: Reported, now: float) -> None:
        """Take what a source has just yielded."""
        progress.read_to = reported.place
        if reported.event == "step":
            for name in reported.values:
                metric = _metric(name)
                self._first_seen.setdefault(metric, now)
                self._candidates.setdefault(metric, set()).add(progress.kind)
        if reported.time is not None:
            progress.latest = now - reported.time
        progress.waiting.append((reported, now))

    def record(self, now: float, *, all_of_it: bool = False, decided: bool = False) -> None:
        """Write what is complete and `decided`, if not all of it is; at the end everything."""
        for progress in self.sources.values():
            while progress.waiting and (
                all_of_it or decided or self._is_settled(progress.waiting[0][0], now)
            ):
                self._group(progress, *progress.waiting.popleft())
            if progress.group and (all_of_it or now - progress.group[-1][1] >= TOGETHER):
                self._write(progress)

    @property
    def waits(self) -> bool:
        """Whether there are values of which it is not decided yet which source counts."""
        return any(progress.waiting for progress in self.sources.values())

    def _is_settled(self, reported: Reported, now: float) -> bool:
        """Whether it is known for each metric which source it is recorded from."""
        if reported.event != "step":
            return True
        metrics = [metric for name in reported.values if (metric := _metric(name)) not in self._owners]
        is_expected = functools.cache(self._is_expected)  # it looks at files
        return all(self._is_decided(metric, now, is_expected) for metric in metrics)

    def _is_decided(self, metric: str, now: float, is_expected: Callable[[], bool]) -> bool:
        """Whether no richer source is expected to report a metric that some have reported."""
        best = max(map(richness, self._candidates[metric]))
        richer = [source for source in self.sources.values() if richness(source.kind) > best]
        waited = now - self._first_seen[metric]
        if best == RICHEST or waited < SETTLE_ALONE:
            return best == RICHEST
        # They have been read, and this metric was not in it, or they would be among its candidates.
        if all(source.read_to for source in richer):
            return waited >= SETTLE or not (richer or is_expected())
        return waited >= SETTLE_LONG

    def _group(self, progress: Followed, reported: Reported, read: float) -> None:
        """Put values of one step together, as sources report them one by one."""
        values = self._own_values(progress, reported)
        kept = Reported(values, reported.place, reported.step, reported.time, reported.event)
        if progress.group:
            before = progress.group[-1][0]
            # a name for the second time is the next report of that step, not a part of this one
            is_same = before.event == kept.event == "step" and before.step == kept.step is not None
            if not is_same or any(values.keys() & old.values.keys() for old, _ in progress.group):
                self._write(progress)
        progress.group.append((kept, read))

    def _own_values(self, progress: Followed, reported: Reported) -> Mapping[str, object]:
        if reported.event != "step":
            return reported.values
        values = {}
        for name, value in reported.values.items():
            metric = _metric(name)
            if metric not in self._owners:
                self._owners[metric] = max(self._candidates[metric], key=richness)
            if self._owners[metric] == progress.kind:
                values[name] = value
                progress.names[name] = None
                self.left_out.count(metric, reported.step, value)
            else:
                progress.left_out[name] = self._owners[metric]
                self._leave(progress, reported, name)
        return values

    def leave_out(self, progress: Followed, reported: Reported) -> None:
        """Take what a killed bridge has read, as far as another source counts."""
        for name in reported.values:
            if self._owners.get(_metric(name), progress.kind) != progress.kind:
                self._leave(progress, reported, name)

    def _leave(self, progress: Followed, reported: Reported, name: str) -> None:
        value, step = reported.values[name], reported.step
        if step is not None and isinstance(value, (int, float)):
            one = LeftOutValue(_metric(name), step, name, value, reported.place, reported.time)
            self.left_out.leave(progress.number, progress.kind, one)

    def stand_in(self, now: float) -> Mapping[str, int]:
        """Record the steps that only sources which are left out have kept; how many of each kind of source.

        The one that counts has been read to its end, and is written no more.
        """
        steps: dict[str, int] = {}
        for progress in sorted(self.sources.values(), key=lambda one: -richness(one.kind)):
            for group in list(self.left_out.rest(progress.number)):
                owner, last = self._owners[group[0].metric], group[-1]
                reported = Reported({one.name: one.value for one in group}, last.place, last.step, last.time)
                mark = {"by": progress.kind, "source": progress.number, "read": now, INSTEAD_OF: owner}
                told = now if last.time is None else last.time
                for event, step, at, fields in self._records(progress, reported, reported.values, told):
                    self._run.relay(event, step, at, {**fields, REPORTED: mark})
                    self._see(event, step, fields)
                    self.count += 1
                for one in group:
                    self.left_out.count(one.metric, one.step, one.value)
                steps[progress.kind] = steps.get(progress.kind, 0) + 1
        return steps

    def _write(self, progress: Followed) -> None:
        """Write the group of one step: its measurements on each split, then the rest with the new place."""
        group, progress.group = progress.group, []
        last, read = group[-1]
        values = {name: value for reported, _ in group for name, value in reported.values.items()}
        times = [reported.time for reported, _ in group if reported.time is not None]
        records = list(self._records(progress, last, values, times[0] if times else read))
        mark = {"by": progress.kind, "source": progress.number, "read": read}
        for number, (event, step, at, fields) in enumerate(records, 1):
            if REPORTED in fields:  # a metric of that name
                fields = {f"{name}_" if name == REPORTED else name: fields[name] for name in fields}
            if progress.skip:
                progress.skip -= 1
                continue
            is_last = number == len(records)
            self._run.relay(
                event, step, at, {**fields, REPORTED: {**mark, **({"place": last.place} if is_last else {})}}
            )
            self._see(event, step, fields)
            self.count += 1
        progress.place = last.place

    def _records(
        self, progress: Followed, last: Reported, values: Mapping[str, object], at: float
    ) -> Iterator[tuple[str, int | None, float, Mapping[str, object]]]:
        if last.event != "step" or progress.kind == "spool":
            self.last_step = max(self.last_step, last.step or 0)
            yield last.event, last.step, at, values
            return
        if not values:
            return
        step = last.step
        if step is None:
            # Without a number, rows that measure a step are counted; what else comes stands at the step
            # before it.
            is_step = has_step(values)
            progress.steps = max(progress.steps, 0 if is_step else self.last_step or self._highest) + is_step
            step = progress.steps
        progress.steps = max(progress.steps, step)
        self.last_step = max(self.last_step, step)
        written = _Records()
        record(written, step, values)
        for event, fields in written.found:
            yield event, step, at, fields


class _Records:
    """Collects what `logged.record` makes of a row."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Record]] = []

    def log_step(self, global_step: int, /, *, at: object = None, **metrics: object) -> None:
        self.found.append(("step", metrics))

    def log_eval(self, global_step: int, /, *, split: str, at: object = None, **metrics: object) -> None:
        self.found.append(("eval", {"split": split, **metrics}))


@functools.lru_cache(maxsize=MOST_NAMES)
def _metric(name: str) -> str:
    """Return one name for what several sources call differently: `train/loss` is `train_loss`."""
    return recorded_name(recorded_name(name).removeprefix("train/"))


@functools.lru_cache(maxsize=MOST_FIELDS)
def _metrics(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the names of a record's metrics, each with that one: records with the same ones come in turn."""
    return [(name, _metric(name)) for name in names if name not in ENVELOPE and name != REPORTED]


def late(progress: Followed) -> float | None:
    """Return how late the source's values are read, in seconds; None where it has no times."""
    return as_number(progress.latest) or None
