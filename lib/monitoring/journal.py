"""The journal: one writer, one line a record, one write(2) a line."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sys
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from monitoring.errors import RunBusyError, RunDirectoryError, unwritable
from monitoring.records import JSON_LINE, Record, last_line, mark_nonfinite, parse

# What a journal keeps in memory while its disk takes nothing: about 50,000 records of ten scalars.
BACKLOG_BYTES = 16 * 2**20


class Journal:
    """Appends records to one file; after construction nothing that the disk does raises.

    Opening cuts a torn last line and goes on with the file's `seq` and with its `attempt` plus one.
    Errors: RunDirectoryError when the file cannot be written or is no journal, RunBusyError when another
    process (or another Journal of this one) has it open. One thread appends; a forked child cannot.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backlog: _Backlog | None = None
        self._torn = 0  # bytes behind the last whole line that a failed write left
        self._closed = ""  # why append does nothing
        self._complained = False
        try:
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
        self._fd = fd
        self._close_fd = weakref.finalize(self, os.close, fd)
        _watch_forks()
        _open_journals.add(self)

    def append(self, record: Record) -> None:
        """Write one record with the next `seq`; TypeError, writing nothing, if a value has no JSON form."""
        record["seq"] = seq = self.seq + 1
        line = orjson.dumps(record, None, JSON_LINE)
        nulls = line.count(b"null")
        # a None is the caller's own; a null beyond those is a NaN or an infinity (or text with "null" in it)
        if nulls and nulls != len([1 for value in record.values() if value is None]):
            mark_nonfinite(record)
            line = orjson.dumps(record, None, JSON_LINE)
        self.seq = seq  # before the write: an interrupt in between leaves a hole, never a number twice
        if self._backlog is not None:
            self._backlog.add(line, seq)
            self._write_backlog()
            return
        try:
            written = os.write(self._fd, line)
        except OSError:
            written = 0
        if written != len(line):
            self._insist(line, seq, written)

    def sync(self) -> None:
        """Return when what is in the file survives a loss of power."""
        if not self._closed:
            with contextlib.suppress(OSError):  # a file system without fsync; the data are with the kernel
                os.fsync(self._fd)

    def close(self) -> None:
        """Write what is still in memory, if the disk takes it now, and make the file durable."""
        if self._closed:
            return
        if self._backlog is not None:
            self._write_backlog()
        if self._backlog is not None:
            lost = len(self._backlog.lines) + self._backlog.lost
            _say(f"error: {self.path}: {lost} records could not be written: {self._backlog.reason}")
        self.sync()
        self._release("it is closed")

    @property
    def is_behind(self) -> bool:
        """Whether records wait in memory for a disk that does not take them."""
        return self._backlog is not None

    @property
    def closed(self) -> bool:
        return bool(self._closed)

    def _release(self, why: str) -> None:
        if not self._closed:
            self._fd, self._closed, self._backlog = -1, why, None
            self._close_fd()

    def _insist(self, line: bytes, seq: int, written: int) -> None:
        """Write the rest of a line of which the disk took `written` bytes, or keep it for later."""
        if self._closed:
            if not self._complained:
                _say(f"warning: {self.path}: a record was not written: {self._closed}")
            self._complained = True
            return
        failure = self._write_whole(line, written)
        if failure is not None:
            self._backlog = _Backlog(failure)
            self._backlog.add(line, seq)
            _say(f"warning: {self.path}: {failure}; records are kept in memory until it takes them again")

    def _write_backlog(self) -> None:
        backlog = self._backlog
        assert backlog is not None
        while backlog.lines:
            failure = self._write_whole(backlog.lines[0], 0)
            if failure is not None:
                backlog.reason = failure
                return
            backlog.take()
        self._backlog = None
        self.append(
            {"event": "gap", "time": time.time(), "seq": 0, "attempt": self.attempt, **backlog.story()}
        )

    def _write_whole(self, line: bytes, written: int) -> str | None:
        """Write a line from byte `written` on; if the disk does not take it, cut what it took and say why."""
        try:
            self._cut_torn()
            self._torn = written
            while written < len(line):
                written += os.write(self._fd, line[written:])
                self._torn = written if written < len(line) else 0
        except OSError as error:
            with contextlib.suppress(OSError):  # not now; every later write tries it first
                self._cut_torn()
            return (error.strerror or str(error)).lower()
        return None

    def _cut_torn(self) -> None:
        """Cut off what a failed write left behind the last whole line."""
        if self._torn:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - self._torn)
            self._torn = 0


@dataclass
class _Backlog:
    """Lines that wait for the disk; beyond BACKLOG_BYTES the oldest are lost, and counted."""

    reason: str
    since: float = field(default_factory=time.monotonic)
    lines: deque[bytes] = field(default_factory=deque)
    seqs: deque[int] = field(default_factory=deque)
    size: int = 0
    delayed: int = 0
    lost: int = 0
    first_lost_seq: int | None = None
    last_lost_seq: int | None = None

    def add(self, line: bytes, seq: int) -> None:
        self.lines.append(line)
        self.seqs.append(seq)
        self.size += len(line)
        while self.size > BACKLOG_BYTES:
            self.last_lost_seq = self._pop()
            self.first_lost_seq = self.first_lost_seq or self.last_lost_seq
            self.lost += 1

    def take(self) -> None:
        self._pop()
        self.delayed += 1

    def _pop(self) -> int:
        self.size -= len(self.lines.popleft())
        return self.seqs.popleft()

    def story(self) -> Record:
        """The fields of the gap record that ends this backlog."""
        return {
            "reason": self.reason,
            "seconds": time.monotonic() - self.since,
            "delayed": self.delayed,
            "lost": self.lost,
            "first_lost_seq": self.first_lost_seq,
            "last_lost_seq": self.last_lost_seq,
        }


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunBusyError(
            f"{path} is being written by another process",
            hint="end that one first, or give this run a directory of its own",
        ) from error
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
    if end < os.fstat(fd).st_size:
        os.ftruncate(fd, end)
    return seq, attempt


# Journals that a forked child must let go of: it shares their files and their lock with its parent.
_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_release_in_child)


def _release_in_child() -> None:
    for journal in list(_open_journals):
        journal._release("it belongs to the parent process")


def _say(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end a training
        print(message, file=sys.stderr, flush=True)
