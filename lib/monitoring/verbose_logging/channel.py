"""Sends events from the training through a pipe to the process that writes its verbose log."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from monitoring.host.backoff import Backoff
from monitoring.host.process import in_children, is_collected, spawned
from monitoring.journal.encoding.json_form import plain
from monitoring.journal.records import JSON_LINE
from monitoring.verbose_logging.log_file import ErrorLog

WRITER = "monitoring.verbose_logging.writer_process"

# Room for some ten thousand events, should the writer not get on; the system's limits may leave it less.
PIPE_BYTES = 2**20

# Seconds for which the events of quick steps are kept. The calls that encode and write them cost a step
# 15 us each, because their code has left the processor's caches since the last; an append costs 3.
FLUSH_EVERY = 0.5

# Events that wait for a writer that does not get on; beyond that the oldest half is lost.
MOST_WAITING = 20_000

# An event that is longer is left out.
LONGEST_EVENT = 2**20

# Seconds between two looks, where this process waits.
RETRY_EVERY = 0.01

# linux/fcntl.h; Python has it from 3.10 on where the system does.
SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


class Channel:
    """Hands events to a writer, which is started with the first and again if it has died; waits only in sync.

    An event is a tuple: its kind, its time by `time.perf_counter` and its facts. Those of quick steps are
    kept for FLUSH_EVERY seconds, so that a step pays for one append to a list; the rest is in the pipe, and
    survives a SIGKILL of this process. A forked child sends nothing.
    """

    def __init__(self, arguments: Sequence[str], errors: ErrorLog) -> None:
        self._arguments = [WRITER, *arguments]
        self._errors = errors
        self.events: list[tuple[Any, ...]] = []
        """Events that wait for the next flush."""
        self.flush_at = 0.0
        """When that is due, by `time.perf_counter`; code that adds an event looks at it."""
        self._pipe, self._answers, self._pid = -1, -1, 0
        self._rest = b""  # encoded events that the full pipe has not taken
        self._lost = 0
        self._syncs = 0
        self._backoff, self._next_start = Backoff(), 0.0
        in_children(_release_in_child)
        _channels.add(self)

    @property
    def is_open(self) -> bool:
        return self._pipe != -1

    def send(self, kind: str, *facts: object) -> None:
        """Send one event now, with all pending ones."""
        self.events.append((kind, time.perf_counter(), *facts))
        self.flush()

    def flush(self) -> None:
        """Write pending events as far as the pipe has room; never raises for an event's content."""
        now = time.perf_counter()
        self.flush_at = now + FLUSH_EVERY
        if self._pipe == -1 and not self._start():
            self._drop_oldest()
            return
        # what the pipe has not taken may begin in the middle of a line, so it goes first
        if not self._rest:
            events, self.events[:] = self.events[:], []
            if self._lost:
                events.insert(0, ("lost", now, self._lost))
                self._lost = 0
            # what makes UTC of a time of perf_counter, which counts from nowhere
            self._rest = self._encoded(events, time.time() - now)
        try:
            self._rest = self._rest[os.write(self._pipe, self._rest) :] if self._rest else b""
        except BlockingIOError:
            pass
        except OSError as error:
            self._died(error)
        self._drop_oldest()

    def sync(self, seconds: float) -> bool:
        """Wait until everything that was sent is written, at most so long; True if it is."""
        self._syncs += 1
        deadline, answer = time.monotonic() + seconds, b""
        self.send("sync", self._syncs)
        while (left := deadline - time.monotonic()) > 0:
            if self._pipe == -1:  # no writer can be started now
                return False
            if self._rest or self.events:  # the pipe was full
                time.sleep(RETRY_EVERY)
                self.flush()
            elif select.select([self._answers], [], [], left)[0]:
                chunk = os.read(self._answers, 4096)
                answer += chunk
                if b"%d\n" % self._syncs in answer:
                    return True
                if not chunk:
                    self._died(BrokenPipeError("it has closed its output"))
                    return False
        return False

    def close(self, seconds: float = 10.0) -> None:
        """Let the writer end, and wait for that at most so long; a later event starts another."""
        if self.events or self._rest:
            self.sync(seconds)
        if self._pipe == -1:
            return
        pid = self._pid
        self._release()
        deadline = time.monotonic() + seconds
        while not is_collected(pid) and time.monotonic() < deadline:
            time.sleep(RETRY_EVERY)

    def _encoded(self, events: Sequence[tuple[Any, ...]], offset: float) -> bytes:
        """Return the lines of events, their times as UTC epoch seconds, which are `offset` later."""
        lines = []
        for kind, when, *facts in events:
            if kind == "log":
                facts.append(_nonfinite(facts[-1]))
            event = [kind, when + offset, *facts]
            try:
                line = orjson.dumps(event, None, JSON_LINE)
            except (TypeError, RecursionError):
                line = orjson.dumps(plain({"event": event})["event"], None, JSON_LINE)
            if len(line) > LONGEST_EVENT:
                self._errors.add(f"an event of {len(line)} bytes is too long: {line[:100]!r}")
            else:
                lines.append(line)
        return b"".join(lines)

    def _drop_oldest(self) -> None:
        if len(self.events) > MOST_WAITING:
            surplus = len(self.events) - MOST_WAITING // 2
            del self.events[:surplus]
            self._lost += surplus

    def _start(self) -> bool:
        """Start the writer, unless one has just failed; whether there is one."""
        if time.monotonic() < self._next_start:
            return False
        self._next_start = time.monotonic() + self._backoff.failed()
        theirs, self._pipe = os.pipe()
        self._answers, answered = os.pipe()
        try:
            os.set_blocking(self._pipe, False)
            if SET_PIPE_SIZE is not None:
                with contextlib.suppress(OSError):  # beyond what the system lets a user have
                    fcntl.fcntl(self._pipe, SET_PIPE_SIZE, PIPE_BYTES)
            pipes = (os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_DUP2, answered, 1)
            self._pid = spawned(self._arguments, *pipes)
        except OSError as error:
            self._errors.add("the process that writes the log cannot be started", error)
            self._release()
            return False
        finally:
            os.close(theirs)
            os.close(answered)
        self._end = weakref.finalize(self, _close, self._pipe, self._answers)
        return True

    def _died(self, error: OSError) -> None:
        self._errors.add("the process that writes the log has ended; another is started", error)
        pid = self._pid
        self._release()
        is_collected(pid)

    def _release(self) -> None:
        pipe, answers = self._pipe, self._answers
        self._pipe, self._answers, self._rest = -1, -1, b""
        end: Any = getattr(self, "_end", None)
        if end is not None and end.alive:
            end()
        else:
            _close(pipe, answers)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed by other code of this process
            os.close(descriptor)


def _nonfinite(logs: Mapping[str, Any]) -> list[str]:
    """Return the names of values for which JSON has no number."""
    return [str(name) for name, value in logs.items() if type(value) is float and not math.isfinite(value)]


_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


def _release_in_child() -> None:
    """A worker of a data loader must not hold the pipe open, nor write into it."""
    for channel in list(_channels):
        channel.events.clear()
        channel._release()
        channel._next_start = float("inf")
