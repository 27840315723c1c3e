"""Appends a run's records to its journal: one writer, one line per record, one write(2) per line."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import weakref
from os import write  # by name: to look it up in a large module touches memory that a training's caches lack
from pathlib import Path

from orjson import dumps

from monitoring.errors import RunBusyError, RunDirectoryError, columns_of, fitting, refusal, unwritable
from monitoring.host.file_locks import try_lock
from monitoring.host.process import in_children
from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.line_file import Backlog, LineFile
from monitoring.journal.records import JSON_LINE, Record, last_line, parse, seq_of
from monitoring.journal.reentrant_queue import raised_by_handler

# Seconds that a lock may take to go: a child that a killed process was starting shares it until it begins
# another program, which on a busy machine takes a while.
PATIENCE = 0.5


class Journal(LineFile):
    """Appends records to one file; after construction nothing that the disk does raises.

    Opening cuts a torn last line and continues the file's `seq` and with its `attempt` plus one.
    Errors: RunDirectoryError when the file cannot be written or is no journal, RunBusyError when another
    process (or another Journal of this one) has it open. One call at a time appends (see reentrant_queue);
    a forked child cannot.
    """

    # with those of the file in one object: side by side in memory, where caches hold something else
    __slots__ = ("__weakref__", "_close_fd", "_closed", "_complained", "attempt", "backlog", "path", "seq")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backlog: _Waiting | None = None
        self._closed = ""  # why append does nothing
        self._complained = False
        try:
            # O_APPEND: each write goes to the end as it is then, also after a repair has cut the file
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            _lock(fd, path)
            self.seq, last_attempt = _continue(fd, path)
        except BaseException:
            os.close(fd)
            raise
        self.attempt = last_attempt + 1
        super().__init__(fd)
        # a Run that is dropped without an end must not hold the lock against the next one
        self._close_fd = weakref.finalize(self, os.close, fd)
        in_children(_release_in_child)
        _open_journals.add(self)

    def append(self, record: Record, line: bytes | None = None, *, is_finite: bool = False) -> None:
        """Write one record with the next `seq`; TypeError, writing nothing, if a value has no JSON form.

        `line`, if given, is the record as it is to be written; `is_finite` says that no number is a NaN or
        an infinity.
        """
        if self.is_doubtful:
            self.repair(self._note)
        record["seq"] = seq = self.seq + 1
        if line is None:
            line = dumps(record, None, JSON_LINE)
            # a None is the caller's own; a null beyond those is a NaN or an infinity (or text with "null" in
            # it); rfind takes two thirds of the time of `in` and `count`
            if not is_finite and line.rfind(b"null") != -1 and line.count(b"null") != _nones(record):
                line = strict_line(record)
        if self.backlog is not None:
            self._keep(line, seq)
            self._write_backlog()
            return
        if self.is_doubtful:  # it still is: the disk does not let it be repaired
            self._insist(line, seq)
            return
        # until it is known that the line is there as one: a signal handler may raise in the middle
        self.is_doubtful = True
        try:
            is_there = write(self.fd, line) == len(line)
        except OSError as error:
            if raised_by_handler(error):
                raise
            is_there = False
        if is_there:
            self.seq = seq  # before the doubt goes: an exception in between reads it from the file
            self.is_doubtful = False
        else:
            self._insist(line, seq)

    def append_any(self, record: Record, *, is_finite: bool = False) -> None:
        """Append a record with values of any type; values without a JSON form become null and are named."""
        try:
            self.append(record, is_finite=is_finite)
        except (TypeError, RecursionError) as error:
            if raised_by_handler(error):
                raise
            self.append(record, strict_line(record))

    def has(self, record: Record) -> bool:
        """Whether a record that may have been handed to `append` was written by it, or is kept."""
        if self.is_doubtful:
            self.repair(self._note)
        return 0 < seq_of(record) <= self.seq

    def sync(self) -> None:
        """Return once the written records survive a power loss (fsync)."""
        if not self._closed:
            with contextlib.suppress(OSError):  # a file system without fsync; the data are with the kernel
                os.fsync(self.fd)

    def close(self) -> None:
        """Write pending records if the disk has room, then fsync and close."""
        if self._closed:
            return
        if self.backlog is not None:
            self._write_backlog()
        if self.backlog is not None:
            lost = self.backlog.lines.count + self.backlog.lost
            say(f"error: {self.path}: {lost} records could not be written: {self.backlog.reason}")
        if self.is_doubtful:
            self.repair(self._note)
        self.sync()
        self._release("it is closed")

    @property
    def is_behind(self) -> bool:
        """Whether records wait in memory for a disk that does not take them."""
        return self.backlog is not None

    @property
    def closed(self) -> bool:
        return bool(self._closed)

    def _release(self, why: str) -> None:
        if not self._closed:
            # -1: a later write fails (EBADF), and `_insist` then says why, once
            self.fd, self.is_doubtful, self._closed, self.backlog = -1, False, why, None
            self._close_fd()

    def _note(self, line: bytes) -> None:
        """Count a line that is in the file, and keep it in memory no longer."""
        if self.backlog is not None:
            if self.backlog.lines.is_first(line):
                self.backlog.take()
            return
        last = parse(line)
        seq = last.get("seq") if last is not None else None
        if isinstance(seq, int):
            self.seq = max(self.seq, seq)

    def _insist(self, line: bytes, seq: int) -> None:
        """Write a line that the disk has not taken as one, or keep it for later."""
        if self._closed:
            if not self._complained:
                say(f"warning: {self.path}: a record was not written: {self._closed}")
            self._complained = True
            return
        failure = self.write(line, self._note)
        if failure is not None:
            self.backlog = _Waiting(refusal(failure))
            self._keep(line, seq)
            say(
                f"warning: {self.path}: {self.backlog.reason}; "
                "records are kept in memory until it takes them again"
            )

    def _keep(self, line: bytes, seq: int) -> None:
        assert self.backlog is not None
        self.seq = seq  # first: an exception in between leaves a hole, never a number twice
        self.backlog.add(line, seq)

    def _write_backlog(self) -> None:
        backlog = self.backlog
        assert backlog is not None
        # the oldest first: readers rely on rising `seq`
        while backlog.lines.count:
            failure = self.write(backlog.lines.first(), self._note)
            if failure is not None:
                backlog.reason = refusal(failure)
                return
        self.backlog = None
        # through append, so that it takes the next number, and waits itself if the disk is full again
        self.append(
            {"event": "gap", "time": time.time(), "seq": 0, "attempt": self.attempt, **backlog.story()}
        )


class _Waiting:
    """Records waiting for the disk, with the count and `seq` of those dropped."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.since = time.monotonic()
        self.lines = Backlog()
        self.delayed = self.lost = 0
        self.first_lost_seq: int | None = None
        self.last_lost_seq: int | None = None

    def add(self, line: bytes, seq: int) -> None:
        """`seq` is one above that of the line before."""
        lost = self.lines.add(line)
        if lost:
            self.lost += lost
            self.last_lost_seq = seq - self.lines.count
            self.first_lost_seq = self.first_lost_seq or self.last_lost_seq - lost + 1

    def take(self) -> None:
        self.lines.drop_first()
        self.delayed += 1

    def story(self) -> Record:
        """Return the fields of the gap record that ends this backlog."""
        return {
            "reason": self.reason,
            "seconds": time.monotonic() - self.since,
            "delayed": self.delayed,
            "lost": self.lost,
            "first_lost_seq": self.first_lost_seq,
            "last_lost_seq": self.last_lost_seq,
        }


def _nones(record: Record) -> int:
    return len([1 for value in record.values() if value is None])


def _lock(fd: int, path: Path) -> None:
    try:
        if try_lock(fd):
            return
        # A Run that was dropped without an end, as in a notebook's cell that failed, is in reference cycles,
        # and keeps its journal open until these are collected.
        gc.collect()
        if not try_lock(fd, seconds=PATIENCE):
            raise RunBusyError(
                f"{path} is being written by another process",
                hint="end that one first, or give this run a directory of its own",
            )
    except OSError:
        return  # a file system without locks: the run directory is the user's to keep apart


def _continue(fd: int, path: Path) -> tuple[int, int]:
    """Cut a torn last line; return `seq` and `attempt` of the last record, (0, 0) for an empty journal."""
    line, end = last_line(fd)
    record: Record | None = parse(line) if line else {"seq": 0, "attempt": 0}
    seq, attempt = (record.get("seq"), record.get("attempt")) if record else (None, None)
    if not isinstance(seq, int) or not isinstance(attempt, int):
        raise RunDirectoryError(
            f"{path}: the last line is not a journal record", hint="move the file away, or remove that line"
        )
    # half a line that a killed process left: the next record would be appended to it
    if end < os.fstat(fd).st_size:
        os.ftruncate(fd, end)
    return seq, attempt


# Journals that a forked child must let go of: it shares their files and their lock with its parent.
_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _release_in_child() -> None:
    for journal in list(_open_journals):
        journal._release("it belongs to the parent process")


def say(message: str) -> None:
    """Print a line on stderr, if it takes it; on a terminal one that is wider goes on below, words whole."""
    # a closed stderr, and one that Python has not opened, must not end a training
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(fitting(message, columns_of(sys.stderr)), file=sys.stderr, flush=True)
