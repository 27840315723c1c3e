"""The start records of an attempt: where a program goes on is known once it reports its first step."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monitoring.bridge.recorder import COPY_OF, INSTEAD_OF, REPORTED
from monitoring.bridge.sources import RICHEST
from monitoring.callbacks.logged import COUNTS
from monitoring.errors import unwritable
from monitoring.journal.encoding.global_step import as_step
from monitoring.journal.lineage import counting_in, start_records, start_records_with_ends
from monitoring.journal.records import ENVELOPE, MEASURING, Record, as_number, read_records, seq_of
from monitoring.journal.run_json import take_config
from monitoring.journal.run_state import is_undecided, read_end, superseded
from monitoring.run import Run

OF_WHOLE_RUN = ("hp_metric", "hparam/", REPORTED)
"""Beginnings of what Lightning and SummaryWriter write at step 0 again whenever they begin: options of the
run and their result, which say nothing of where it goes on. And the mark of our own."""
# End of the name by which the Trainer's last log is known, of the whole training: its mean loss is no step's.
SUMMARY = "train_runtime"
# Names that say what a record is of, and count; they measure nothing.
BESIDE = COUNTS | {"split"}
NO_MEASUREMENTS = ENVELOPE | BESIDE

Kinds = set[tuple[str, str]]


class ProgramAttempt:
    """A run, as the recorder writes it.

    A program finds its own checkpoints, or none. Until it reports a step, a later attempt goes on where the
    one before stood; if its steps then begin earlier, another start record says from where on it does them
    again. So nothing that it did not do again is lost, and nothing counts twice.
    """

    def __init__(self, run: Run, journal: Path, *, program: str | None, num_steps: int | None) -> None:
        self._run = run
        self._journal = journal
        self._about: Mapping[str, Any] = {
            "model": {"name": program, "architecture": None, "parameters": None},
            "training": {"num_steps": num_steps},
        }
        self._described: Mapping[str, object] | None = None
        self._said: dict[int, Mapping[str, object]] = {}
        """The configurations that it has logged, by how rich the sources are."""
        self._reached: int | None = None
        """The highest step at which the attempt before stood: sources are not equally late."""
        self._last_seq = 0
        """Number of the last record before this attempt."""
        self._lowest: dict[str, int] = {}
        """Event -> the lowest step of those that have told where this attempt goes on."""
        self._highest: dict[tuple[str, str], int] | None = None
        """Metrics measured before this attempt -> their highest step; None until it is asked for."""
        self._gone: list[range] = []
        """The `seq` that it is known to do again."""
        self._copied = range(0)
        """The `seq` of what it has recorded once more."""

    @property
    def number(self) -> int:
        return self._run.attempt

    def start(self) -> None:
        """Write the start record."""
        last_seq = read_end(self._journal).last_seq
        self._begin(last_seq, _highest_step(self._journal) if last_seq else None)
        self._run.start(**self._about, **_resumed(self._reached), supersedes=None)

    def _begin(self, last_seq: int, reached: int | None) -> None:
        self._last_seq, self._reached = last_seq, reached
        self._lowest, self._highest, self._gone, self._copied = {}, None, [], range(0)

    def start_recorded(self) -> None:
        """Write the start record of a later attempt. RunDirectoryError if a full disk does not take it.

        Nobody could tell its steps from those of the attempt before, if it was killed.
        """
        self._check_recorded()  # what that one has left, of which the start record tells the last step
        self.start()
        self._check_recorded()

    def _check_recorded(self) -> None:
        if self._run.last_seq() != read_end(self._journal).last_seq:
            raise unwritable(self._journal, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def stand_for_killed(self) -> None:
        """Record what is relayed from now on as of the attempt before, which was killed before it had.

        That one may have done steps again without having recorded any.
        """
        begins = 0
        for record, end in start_records_with_ends(self._journal):
            if is_undecided(record):  # as `start` writes it
                resumed, begins = record["resumed_from"], end
                reached = resumed["global_step"] if isinstance(resumed, Mapping) else None
                self._begin(seq_of(record) - 1, reached)
        if self._reached is None:  # it had nothing to do again
            return
        for record, _ in read_records(self._journal, begins):
            step = as_step(record.get("global_step"))
            if record["event"] == "start":
                self._gone.append(gone := superseded(record))
                self._copied = range(0) if self._copied.start in gone else self._copied
            elif COPY_OF in _mark(record):
                seq = seq_of(record)
                self._copied = range(self._copied.start or seq, seq + 1)
            elif record["event"] == "step" and step is not None and self._reached is not None:
                self._told_by("step", step, record)

    def describe(self, at: float, about: Mapping[str, object]) -> None:
        """Take over what a Run of the program says of its model and training."""
        if isinstance(config := about.get("config"), Mapping):
            self._said[RICHEST] = config
        self._described = about
        self._tell(at, about)

    @property
    def is_configured(self) -> bool:
        """Whether anything is known of its configuration but the words of its command."""
        return bool(self._said)

    def configure(self, at: float, configs: Mapping[int, Mapping[str, object]]) -> None:
        """Take over the configuration that it has logged to its trackers, by how rich they are."""
        self._said |= configs
        self._tell(at, self._described or own_fields(read_end(self._journal).start))

    def _tell(self, at: float, about: Mapping[str, object], **more: object) -> None:
        """Write another start record, with the whole configuration; that of a Run counts before others."""
        said: dict[str, object] = {}
        for richness in sorted(self._said):
            names = {name.lower() for name in self._said[richness]}
            kept = {name: value for name, value in said.items() if name.lower() not in names}
            said = {**kept, **self._said[richness]}
        if said:
            about = {**about, "config": take_config(self._run.directory, said)}
        self._run.relay("start", None, at, {**about, **more})

    def relay(self, event: str, global_step: int | None, at: float, fields: Mapping[str, object]) -> None:
        """Record what the program has reported."""
        if self._reached is not None and event in MEASURING and global_step is not None:
            kinds = self._told_by(event, global_step, fields)
            if kinds and event == "step":
                if self._copied:  # a source that is late tells of an earlier step
                    self._supersede(self._copied, _resumed(global_step - 1))
                    self._copied = range(0)
                self.restore(global_step)
            if kinds and global_step <= self._reached:
                self._go_on_from(event, global_step, kinds)
        self._run.relay(event, global_step, at, fields)

    def restore(self, step: int | None = None) -> None:
        """Record once more what an attempt did again and lost: this one goes on behind it, at that step.

        All that is known of it was measured by an earlier attempt. `step` is None for a program that had none
        left to do.
        """
        if self._reached is None or (step is None and self._lowest):
            return
        if not (found := self._lost(step)):
            return
        last_seq = self._run.last_seq()
        for record, lost in found:
            copied = {name: value for name, value in _mark(record).items() if name != "place"}
            fields = {name: record[name] for name in record.keys() - ENVELOPE if name in lost | BESIDE}
            fields[REPORTED] = {**copied, COPY_OF: record["seq"]}
            at = as_number(record["time"]) or time.time()
            self._run.relay(str(record["event"]), as_step(record["global_step"]), at, fields)
        self._copied = range(last_seq + 1, self._run.last_seq() + 1)

    def _lost(self, until: int | None) -> list[tuple[Record, set[str]]]:
        """Return records of earlier steps that do not count, and their metrics of which no later one does.

        None of a source that has reported such a step since: what it did not report there is not lost.
        """
        # Two passes over the journal: the first keeps numbers alone, for mostly nothing is lost, and a
        # journal may be far larger than memory should be.
        ranges = [again for start in start_records(self._journal) if (again := superseded(start))]

        def is_gone(record: Record) -> bool:
            return any(record["seq"] in one for one in ranges)

        highest: dict[tuple[str, str], int] = {}
        gone_highest: dict[tuple[str, str], int] = {}
        for record, step in _measured(self._journal) if ranges else ():
            if not is_gone(record):
                own = set() if INSTEAD_OF in _mark(record) else {_reporting(record)}
                for kind in _kinds(str(record["event"]), record) | own:
                    highest[kind] = max(step, highest.get(kind, step))
            elif self._is_before(until, record, step):
                for kind in _kinds(str(record["event"]), record):
                    gone_highest[kind] = max(step, gone_highest.get(kind, step))
        newest: dict[tuple[tuple[str, str], int], Record] = {}
        if any(step > highest.get(kind, -1) for kind, step in gone_highest.items()):
            for record, step in _measured(self._journal):
                if (
                    is_gone(record)
                    and self._is_before(until, record, step)
                    and step > highest.get(_reporting(record), -1)
                ):
                    kinds = _kinds(str(record["event"]), record)
                    newest |= {(kind, step): record for kind in kinds if step > highest.get(kind, -1)}
        found: dict[int, tuple[Record, set[str]]] = {}
        for ((_, name), _), record in newest.items():
            found.setdefault(seq_of(record), (record, set()))[1].add(name)
        return [found[seq] for seq in sorted(found)]

    def _is_before(self, until: int | None, record: Record, step: int) -> bool:
        """Whether a record is of a step before the one at which this attempt goes on."""
        if until is not None and step >= until:
            return False
        # evaluations may be counted in epochs
        return record["event"] != "eval" or step >= (self._reached or 0)

    def _told_by(self, event: str, step: int, fields: Mapping[str, object]) -> Kinds:
        """Return what a record measures if that tells where this attempt goes on.

        One of an earlier step does if something in it was measured from that step on before: a summary that a
        program writes again, having no step left to do, takes nothing away from its last step.
        """
        # An evaluation may be counted in epochs, beside steps that are not.
        if step >= self._lowest.get(event, step + 1) or (event != "step" and "step" in self._lowest):
            return set()
        assert self._reached is not None
        kinds = _kinds(event, fields)
        if step <= self._reached:
            kinds = {kind for kind in kinds if self._measured_before.get(kind, step - 1) >= step}
        if kinds:
            self._lowest[event] = step
        return kinds

    @property
    def _measured_before(self) -> Mapping[tuple[str, str], int]:
        if self._highest is None:
            self._highest = {}
            for record in self._before():
                if (step := as_step(record.get("global_step"))) is not None:
                    for kind in _kinds(str(record["event"]), record):
                        self._highest[kind] = max(step, self._highest.get(kind, step))
        return self._highest

    def _before(self) -> Iterator[Record]:
        """Yield what was recorded before this attempt, and counts."""
        return counting_in(self._journal, self._last_seq)

    def _go_on_from(self, event: str, step: int, kinds: Kinds) -> None:
        """Write from where on this attempt does things again, unless that is written."""
        kept = set() if event == "step" else self._done_before(step, kinds)
        again, is_all = self._again(step - 1, kept)
        resumed = _resumed(None if is_all else step if kept else step - 1)
        for gone in again:
            if any(known.start <= gone.start and gone.stop <= known.stop for known in self._gone):
                continue
            self._supersede(gone, resumed)

    def _supersede(self, gone: range, resumed: Mapping[str, Any]) -> None:
        """Write that this attempt does these records again."""
        self._gone.append(gone)
        marked = {"first_seq": gone.start, "last_seq": gone.stop - 1}
        if self._described is None and not self._said:
            self._run.start(**self._about, **resumed, supersedes=marked)
        else:
            about = self._described or own_fields(read_end(self._journal).start)
            self._tell(time.time(), about, **resumed, supersedes=marked)

    def _again(self, resumed_step: int, kept: set[int]) -> tuple[list[range], bool]:
        """Return the `seq` before this attempt that it does again, and whether that is all.

        Of each source of steps it is what came after the last measurement up to that step, for one that is
        late has its records of earlier steps among those of later ones of another. Else it is of all.
        """
        measured = [
            (
                seq_of(record),
                as_step(record.get("global_step")) or 0,
                _source(record),
                record["event"],
            )
            for record in self._before()
            if record["event"] in MEASURING
        ]
        of_steps = {source for _, _, source, event in measured if event == "step"}
        done = dict.fromkeys(of_steps - {None}, 0)
        last_done = 0
        for seq, step, source, _ in measured:
            if seq in kept or 0 < step <= resumed_step:
                last_done = seq
                if source in done:
                    done[source] = seq
        found, first, is_again = list[range](), 1, False
        for seq, _, source, _ in measured:
            # Ranges are of all that stands between two records that are kept, so that what measures nothing
            # goes along.
            if seq > done.get(source, last_done):
                is_again = True
                continue
            if is_again:
                found.append(range(first, seq))
            first, is_again = seq + 1, False
        if is_again:
            found.append(range(first, self._last_seq + 1))
        return found, not last_done

    def _done_before(self, step: int, kinds: Kinds) -> set[int]:
        """Return the `seq` of the records of a step that came before what was measured there beside it.

        An evaluation after a step is done again without that step.
        """
        found = set()
        for record in self._before():
            at = as_step(record.get("global_step"))
            if at == step and record["event"] == "step":
                found.add(seq_of(record))
            elif at is not None and at >= step and kinds & _kinds(str(record["event"]), record):
                break
        return found


def _highest_step(journal: Path) -> int | None:
    """Return the highest step that counts."""
    steps = (as_step(one.get("global_step")) for one in counting_in(journal) if one["event"] == "step")
    return max((step for step in steps if step is not None), default=None)


def _measured(journal: Path) -> Iterator[tuple[Record, int]]:
    """Yield the records of steps and evaluations that sources have reported."""
    for record, _ in read_records(journal):
        step = as_step(record.get("global_step"))
        if record["event"] in ("step", "eval") and step is not None and REPORTED in record:
            yield record, step


def _source(record: Record) -> tuple[object, object] | None:
    """Return the source that has reported a record, and what for; None for the bridge's own.

    Of each of these the records are in the order of their steps.
    """
    mark = _mark(record)
    return (mark.get("source"), mark.get(INSTEAD_OF)) if mark else None


def _mark(record: Record) -> Mapping[str, object]:
    mark = record.get(REPORTED)
    return mark if isinstance(mark, Mapping) else {}


def _reporting(record: Record) -> tuple[str, str]:
    """Return what is known of the kind of source that its metrics are recorded from, as if that were one."""
    mark = _mark(record)
    return "source", str(mark.get(INSTEAD_OF, mark.get("by")))


def _kinds(event: str, fields: Mapping[str, object]) -> Kinds:
    """Return what a record measures, as the event and a name; nothing where that is of the whole run."""
    if event not in ("step", "eval"):
        return {(event, "")} if event in MEASURING else set()
    if any(name.endswith(SUMMARY) for name in fields):
        return set()
    return {
        (event, name)
        for name in fields
        if name.removeprefix("train/") not in NO_MEASUREMENTS and not name.startswith(OF_WHOLE_RUN)
    }


def own_fields(start: Record) -> dict[str, object]:
    """Return what a start record says of the run, for another one of the same attempt."""
    return {name: start[name] for name in start.keys() - ENVELOPE - {"resumed_from", "supersedes"}}


def _resumed(step: int | None) -> dict[str, Any]:
    """Return `resumed_from`: null for an attempt from scratch."""
    return {"resumed_from": {"checkpoint": None, "global_step": step} if step else None}
