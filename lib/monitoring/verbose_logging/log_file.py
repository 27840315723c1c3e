"""The files of a verbose log: lines of strict JSON that are rotated and compressed, and the log of errors.

A full file becomes NAME.000001.gz, the next NAME.000002.gz and so on; of more than `keep` the oldest goes.
It is no journal: entries have the documented fields alone, so that the documented validator passes.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from monitoring.errors import RunBusyError
from monitoring.host.correlation import own_rank
from monitoring.host.file_locks import try_lock
from monitoring.journal.atomic_file import replacing
from monitoring.journal.encoding.json_form import strict_line
from monitoring.journal.line_file import KeptLines
from monitoring.journal.records import Record

LOG_FILE = "verbose_training_logs.jsonl"
STANDARD_LOG = "training_logs.jsonl"
ERROR_LOG = "verbose_logging_errors.log"

# At 1 KB per entry, some 60,000 steps; gzip leaves less than a tenth.
FILE_BYTES = 64 * 2**20
KEEP = 16

# Beyond it, the log of errors takes no more.
MOST_ERRORS = 2**20


def rank_path(path: Path, rank: int) -> Path:
    """Return the file of a rank: that of rank 0 has the name itself, others NAME.rank0001.jsonl and so on."""
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank:04}{path.suffix}")


class ErrorLog:
    """One line for each thing that went wrong; made when the first does, and never raising.

    Where it cannot be written either, the line goes to standard error.
    """

    def __init__(self, folder: Path, rank: int | None = None) -> None:
        self._path = rank_path(folder / ERROR_LOG, own_rank() if rank is None else rank)
        self._told: set[str] = set()

    def add(self, what: str, error: BaseException | str = "") -> None:
        """Note what failed and why; what was noted by this process before is not repeated."""
        why = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        text = f"{what}: {why}" if why else what
        if text in self._told or len(self._told) > 1000:
            return
        self._told.add(text)
        line = text.encode(errors="backslashreplace").replace(b"\n", b"\\n") + b"\n"
        try:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                if os.fstat(fd).st_size < MOST_ERRORS:
                    os.write(fd, f"{stamp} ERROR ".encode() + line)
            finally:
                os.close(fd)
        except OSError:
            with contextlib.suppress(OSError):  # there is no other place for the message
                os.write(2, b"warning: verbose log: " + line)


class LogFile:
    """Appends entries to one file, which it continues; a full disk raises nothing, lines wait in memory."""

    def __init__(
        self, path: Path, errors: ErrorLog, *, file_bytes: int = FILE_BYTES, keep: int = KEEP
    ) -> None:
        """OSError if it cannot be written, RunBusyError if another process writes it."""
        self.path = path
        self._errors = errors
        self._file_bytes, self._keep = file_bytes, keep
        self._file = KeptLines(self._opened())
        if failure := self._file.repair(lambda line: None):
            self._file.close()
            raise failure
        self._compress_full()  # what a killed process has left

    def append(self, entries: Sequence[Mapping[str, object]]) -> None:
        """Write entries, with one write if the disk takes them; NaN and infinities are null."""
        if self._file.fd == -1 or not entries:
            return
        self._file.append_all([strict_line(dict(entry)) for entry in entries])
        if self._file.failure is not None:
            self._errors.add(f"{self.path}: lines wait in memory", self._file.failure)
        if self._file.lost:
            self._errors.add(f"{self.path}: lines were lost, because the disk took none for too long")
        if os.fstat(self._file.fd).st_size >= self._file_bytes:
            self._rotate()

    def check(self) -> None:
        """Return when nothing waits; OSError while the disk takes nothing."""
        self._file.write_waiting()
        if self._file.waiting.count:
            raise OSError(errno.EIO, "the disk takes no lines", str(self.path))

    def close(self) -> None:
        """Write what still waits, if the disk takes it now."""
        if self._file.fd == -1:
            return
        self._file.write_waiting()
        if self._file.waiting.count:
            self._errors.add(f"{self.path}: {self._file.waiting.count} lines could not be written")
        self._file.close()

    def _opened(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if _is_taken(fd):
            os.close(fd)
            raise RunBusyError(
                f"{self.path} is being written by another process", hint="give each training a log_file"
            )
        return fd

    def _rotate(self) -> None:
        """Move the full file aside, begin another and compress what is full."""
        try:
            if self._file.waiting.count:  # these lines belong to this file
                return
            numbers = [*_numbered(self.path, ".gz"), *_numbered(self.path, "")]
            full = self.path.with_name(f"{self.path.name}.{max(numbers, default=0) + 1:06}")
            self.path.rename(full)
            before, self._file.fd = self._file.fd, self._opened()
            os.close(before)
            self._compress_full()
        except (OSError, RunBusyError) as error:
            self._errors.add(f"{self.path}: rotation failed", error)

    def _compress_full(self) -> None:
        try:
            for full in _numbered(self.path, "").values():
                with (
                    full.open("rb") as lines,
                    replacing(full.with_name(f"{full.name}.gz")) as file,
                    gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
                ):
                    shutil.copyfileobj(lines, packed)
                # the archive is on disk by now: a kill in between leaves both, and the next start repeats it
                full.unlink()
            archives = _numbered(self.path, ".gz")
            for number in sorted(archives)[: -self._keep]:
                archives[number].unlink()
        except OSError as error:
            self._errors.add(f"{self.path}: compression failed", error)


def _is_taken(fd: int) -> bool:
    """Whether another process writes the file; not known where the file system has no locks."""
    try:
        return not try_lock(fd)
    except OSError:
        return False


def full_files(path: Path) -> list[Path]:
    """Return the compressed files of a log, newest first."""
    found = _numbered(path, ".gz")
    return [found[number] for number in sorted(found, reverse=True)]


def _numbered(path: Path, suffix: str) -> dict[int, Path]:
    """Return the full files of a log by their number, those that are compressed by the suffix `.gz`."""
    found = {}
    for other in path.parent.glob(f"{path.name}.*"):
        match = re.fullmatch(rf"(\d{{6,}}){re.escape(suffix)}", other.name.removeprefix(f"{path.name}."))
        if match:
            found[int(match[1])] = other
    return found


def open_log(path: Path, errors: ErrorLog, *, file_bytes: int = FILE_BYTES) -> LogFile | NoLog:
    """The log at a path; one that does nothing where that cannot be written, which the log of errors has."""
    try:
        return LogFile(path, errors, file_bytes=file_bytes)
    except (OSError, RunBusyError) as error:
        errors.add(f"{path} cannot be written", error)
        return NoLog()


class NoLog:
    """A log that writes nothing, in place of one that cannot be written."""

    def append(self, entries: Sequence[Record]) -> None: ...

    def close(self) -> None: ...
