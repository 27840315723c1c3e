"""Delivers one run's records to one follower: each once, in order, through any failure."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from monitoring.agent.journal_tails import JournalTails
from monitoring.agent.progress import DeliveryProgress
from monitoring.agent.refused_records import RefusedRecords, deliver_apart
from monitoring.agent.sample_threads.journal_sampling import Awaited
from monitoring.errors import MonitoringError, failure
from monitoring.follower import (
    Follower,
    LiveFollower,
    RunInfo,
    follower_module,
    follower_note,
    follower_options,
    is_live,
)
from monitoring.host.backoff import STEADY_SECONDS, Backoff
from monitoring.journal.alerts import Alerts
from monitoring.journal.files import JOURNAL, sample_event
from monitoring.journal.records import PICTURES, Record, attempt_of, kind_of, last_record

# Records handed to a follower at once: where followers share an interpreter, and where one is alone.
BATCH = 1000
BATCH_APART = 8000

# Seconds between looks at the journal: while a run is so young that it may have ended by the next, and later.
# A look and a batch cost a follower nearly the same for four records as for fifteen.
POLL = 0.25
LATER_POLL = 1.0
YOUNG = 10.0

# Seconds without records after which a process that only catches up leaves the journal to the agent.
STILL_AFTER = 10.0

# Seconds between two flushes of a follower while records keep coming.
FLUSH_EVERY = 1.0

# A follower that lacks so many bytes of the journal, some 50,000 records, gets a process of its own. Below
# that a process, which imports the tracker's packages again, saves nothing.
BEHIND_BYTES = 16 * 2**20

# Once no records come any more, a follower that fails is given up after LAST_TRIES further failures, with at
# most so many seconds between them, and `make sync` delivers the rest.
LAST_TRIES = 5
LONGEST_LAST_DELAY = 8.0


CatchUp = Callable[[RunInfo, str, Mapping[str, object], Callable[[DeliveryProgress, int], None]], bool]
"""Brings a follower to the end of its journals in another process; False if that fails."""


class Delivery:
    """Takes records from the journal of `run` to the follower `name`; one thread calls `follow`."""

    def __init__(
        self,
        run: RunInfo,
        name: str,
        options: Mapping[str, object],
        *,
        saved: DeliveryProgress,
        alerts: Alerts,
        last_tries: int = LAST_TRIES,
        apart: CatchUp | None = None,
    ) -> None:
        """`apart` catches up in another process, if that is wanted."""
        self.name = name
        self.progress = saved
        self.delivered = 0
        """Records that this delivery has brought into the sink, but for alerts."""
        self.last_moved = time.monotonic()
        self.finished = False
        """Whether the sink has everything and is closed."""
        self.error: Exception | None = None
        """Why `follow` gave up, or fails at present."""
        self._run = run
        self._options = options
        self._live = is_live(name)
        self._alerts = alerts
        self._journal = run.directory / JOURNAL
        self._tails = JournalTails(run.directory, name)
        self._follower: Follower | None = None
        self._lingering: LiveFollower | None = None
        self._pending = 0  # records taken and not flushed
        self._pending_alerts = 0  # those of them that are alerts
        self._flushed_at = 0.0
        self._refused = RefusedRecords(name, alerts)
        self._apart = None if self._live else apart
        self._tries = _Tries(last_tries)
        self._batch = BATCH

    def follow(
        self,
        attempt: int,
        ending: threading.Event,
        stop: threading.Event,
        sampled: Awaited,
        reached_end: threading.Event,
    ) -> None:
        """Deliver until `attempt` has ended and everything is in the sink, until `stop`, or until given up.

        `ending` says that no more records of the training will come, `sampled` that none of the agent will
        that are awaited: samples, and what rules find. `reached_end` is set once the attempt has ended.
        Never raises: what the follower raises becomes an alert.
        """
        began = time.monotonic()
        while True:
            # before reading: what was recorded by then is delivered in this pass
            last_pass = ending.is_set() or stop.is_set()
            # a follower of metrics.jsonl alone waits for no sample and no alert
            all_sampled = sampled.is_set() or self._tails.are_of_rank_0
            if all_sampled:
                self._tails.look_at_once()  # another host's journal may have come since the last look
            try:
                if self._is_far_behind():
                    self._catch_up_apart()
                more = self._advance(last_pass=last_pass)
                if has_ended := not more and (last_pass or self._has_ended(attempt)):
                    reached_end.set()
                if has_ended and all_sampled:
                    self._close()
                    self._note_success()
                    return
            except BaseException as raised:  # noqa: BLE001 - a follower is called here; the failure becomes an alert
                # Some of these are no Exception: a panic of a library in Rust, an exit.
                error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
                if not self._retry_after(error, last_pass=last_pass or self._is_over(attempt), stop=stop):
                    return
                continue
            self._note_success()
            if not more:
                awaited: Awaited = sampled if has_ended else ending
                awaited.wait(POLL if time.monotonic() - began < YOUNG else LATER_POLL)

    def bring_up_to_date(self, report: Callable[[], None]) -> None:
        """Deliver all records, and those that arrive meanwhile; then close the sink.

        Calls `report` after each batch. Raises what the follower raises.
        """
        self._batch = BATCH_APART
        more = True
        while more or not (self._has_ended(0) or time.monotonic() - self.last_moved > STILL_AFTER):
            if not more:
                time.sleep(POLL)
            more = self._advance(last_pass=False)
            report()
        # with a flush: `progress` counts only what is durable in the sink
        while self._advance(last_pass=True):
            pass
        follower, self._follower = self._follower, None
        assert follower is not None
        self._note_held(follower)
        follower.close(None)  # without a status: the agent continues with this sink
        self._tails.close()
        report()

    def linger(self, stop: threading.Event) -> None:
        """Let a live follower show the end, after `follow`, and close it; its failure goes to agent.log."""
        if self._lingering is None:
            return
        try:
            try:
                self._lingering.linger(stop)
            finally:
                self._lingering.close(self._status())
        except Exception as error:  # noqa: BLE001 - a follower is called here; the run's files are complete
            sys.excepthook(type(error), error, error.__traceback__)

    def _is_far_behind(self) -> bool:
        try:
            size = self._journal.stat().st_size if self._apart is not None else 0
        except FileNotFoundError:
            return False
        return size - self.progress.offset > BEHIND_BYTES

    def _catch_up_apart(self) -> None:
        """Let go of the sink until another process has caught up; if that fails it is not tried again."""
        assert self._apart is not None
        follower, self._follower = self._follower, None
        self._tails.close()
        if follower is not None:
            follower.close(None)
        before = self.delivered

        def moved(progress: DeliveryProgress, delivered: int) -> None:
            # it reports after every look: one with nothing new must not keep HANGING_AFTER from passing
            places = [(it.seq, it.other_seqs) for it in (progress, self.progress)]
            if places[0] != places[1]:
                self.last_moved = time.monotonic()
            self.progress, self.delivered = progress, before + delivered

        options = {**self._options, **getattr(follower_module(self.name), "OPTIONS_APART", {})}
        if not self._apart(self._run, self.name, options, moved):
            self._apart = None

    def _advance(self, *, last_pass: bool) -> bool:
        """Deliver what the journals have by now; True if there is more."""
        if self._follower is None:
            self._follower = self._open()
        else:
            for name in self._tails.new_hosts(at_once=last_pass):
                self._tails.seek(name, self._follower.last_seq(name))
        batch = self._tails.take(self._batch, whatever_size=last_pass)
        # a live follower is called without records as well: it shows how time passes
        for part in parts_with_pictures(batch) if batch or self._live else []:
            deliver_apart(self._follower.deliver, part, self._put_aside)
        if batch:
            self._pending += len(batch)
            self._pending_alerts += sum(record.get("event") == "alert" for record in batch)
            self.last_moved = time.monotonic()
        ended = self._tails.last.get("event") == "end"
        if self._pending and (last_pass or ended or time.monotonic() - self._flushed_at >= FLUSH_EVERY):
            self._follower.flush()
            self._flushed_at = time.monotonic()
            self.delivered += self._pending - self._pending_alerts
            self._pending = self._pending_alerts = 0
        # only after a flush: followers.json must not claim what a crash of the sink would lose
        if not self._pending:
            self.progress = self._where()
        return self._tails.have_more

    def _open(self) -> Follower:
        options = follower_options(self.name, self._options)
        follower: Follower = follower_module(self.name).open_follower(self._run, options)
        if (note := follower_note(self.name, options)) is not None:
            self._alerts.fire("follower", "info", note, subject=f"note on {self.name}")
        saved = self.progress
        held = {name: follower.last_seq(name) for name in self._tails.seqs}
        if any(held.values()) and held == {name: saved.held_of(name) for name in held}:
            # The sink is as it was when closed: what came after had nothing for it, or was refused. (One that
            # holds nothing may be another one now.)
            held = {name: max(seq, saved.seq_of(name)) for name, seq in held.items()}
        for name, seq in held.items():
            # an offset that was saved with a higher `seq` than the sink holds would skip records
            offset = saved.offset if name == JOURNAL and saved.seq <= seq else 0
            gone = self._tails.seek(name, seq, offset=offset)
            if name != JOURNAL:
                self._note_gone(name, gone)
        self._pending = self._pending_alerts = 0
        self._tails.last = last_record(self._journal) or {}  # stands if there is nothing left to read
        return follower

    def _where(self) -> DeliveryProgress:
        """Return the progress that the places of the tails mean."""
        return self.progress.at(self._tails.seqs, offset=self._tails.offset)

    def _note_held(self, follower: Follower) -> None:
        """Note how far the tails are and what the sink itself holds, before it is closed."""
        held = {name: follower.last_seq(name) for name in self._tails.seqs}
        self.progress = self._where().holding(held)

    def _put_aside(self, record: Record, error: Exception) -> None:
        """Count a record that the sink refuses."""
        if reason := self._refused.note(record, error):
            self.progress = replace(self.progress, refused=self.progress.refused + 1, refusal=reason)

    def _note_gone(self, journal: str, records: int) -> None:
        if records:
            kind = kind_of(sample_event(journal))
            of = {"gpu": "GPU samples", "system": "samples of the machine"}.get(kind, "alerts")
            self._alerts.add(
                "follower",
                "warning",
                f"{self.name}: {records} {of} were removed with old files before it took them",
            )

    def _has_ended(self, attempt: int) -> bool:
        return self._tails.last.get("event") == "end" and attempt_of(self._tails.last) >= attempt

    def _is_over(self, attempt: int) -> bool:
        """Whether the run has ended and this follower would only have shown it running."""
        last = last_record(self._journal) or {} if self._live else {}
        return last.get("event") == "end" and attempt_of(last) >= attempt

    def _close(self) -> None:
        follower, self._follower = self._follower, None
        assert follower is not None
        status = self._status()
        self._note_held(follower)
        if self._live:
            self._lingering = cast(LiveFollower, follower)
        else:
            follower.close(status)
        self.progress = replace(self.progress, ended=status is not None)
        self._tails.close()
        self.finished = True

    def _status(self) -> str | None:
        return str(self._tails.last.get("status")) if self._tails.last.get("event") == "end" else None

    def _retry_after(self, error: Exception, *, last_pass: bool, stop: threading.Event) -> bool:
        """Note the failure, close the follower and wait before the next try; False when it is given up."""
        if isinstance(self.error, MemoryError) and isinstance(
            error, ImportError | NameError | AttributeError
        ):
            error = self.error  # a module that it left half imported cannot be imported again
        message = f"{self.name}: {failure(error)}"
        if self.error is None or str(error) != str(self.error):
            self._alerts.fire("follower", "warning", f"{message}; it is tried again", subject=self.name)
        self.error = error
        self.progress = replace(self.progress, ended=False, error=message)
        # How much of the last batch the sink holds is unknown: the next `_open` asks it where to read from.
        self._tails.close()
        if self._follower is not None:
            follower, self._follower = self._follower, None
            try:
                follower.close(None)
            except BaseException as closing:  # noqa: BLE001 - a follower is called here; it has failed already
                self._alerts.add("follower", "warning", f"{self.name}: while closing: {closing}")
        if not self._tries.are_left_after(error, last_pass=last_pass) or stop.is_set():
            rest = "" if self._live else ", `make sync` delivers the rest"
            self._alerts.fire("follower", "error", f"{message}; not tried again{rest}", subject=self.name)
            return False
        # No longer wait where the end of a run depends on it, or where the values shown are of now.
        delay = self._tries.delay()
        stop.wait(min(delay, LONGEST_LAST_DELAY) if last_pass or self._live else delay)
        return True

    def _note_success(self) -> None:
        self._alerts.resolve("follower", f"{self.name}: takes records again", subject=self.name)
        self.error = None
        self._tries.succeeded()


class _Tries:
    """How often a follower that fails is tried again, and after how long."""

    def __init__(self, last_tries: int) -> None:
        """`last_tries` are the further failures that are allowed once no records come any more."""
        self._allowed = self._left = last_tries
        self._backoff, self._failed_at = Backoff(), 0.0

    def are_left_after(self, error: Exception, *, last_pass: bool) -> bool:
        """Note a failure; whether another try may follow."""
        if last_pass:  # what the user has to fix does not fix itself by waiting
            self._left -= self._allowed + 1 if isinstance(error, MonitoringError) else 1
        return self._left >= 0

    def delay(self) -> float:
        """Return the seconds until the next try; longer each time."""
        self._failed_at = time.monotonic()
        return self._backoff.failed()

    def succeeded(self) -> None:
        """Allow as many failures as before; waits are short again once the last failure is a while ago."""
        self._left = self._allowed
        # a sink may come and go
        if time.monotonic() - self._failed_at > STEADY_SECONDS:
            self._backoff.reset()


def parts_with_pictures(batch: list[Record]) -> Iterator[list[Record]]:
    """The records in parts that end with one with pictures: a follower has those of one record in memory."""
    first = 0
    for end, record in enumerate(batch, start=1):
        if PICTURES in record:
            yield batch[first:end]
            first = end
    if first < len(batch) or not batch:
        yield batch[first:]
