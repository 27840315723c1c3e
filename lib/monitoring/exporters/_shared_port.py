"""A user's runs that share one address of this machine, so that one exporter shows all.

Each is a small file that holds the path of its directory, in a folder that only this user can read and write.
Nothing else is written down: whether a run is still to be shown stands in its own files, so a kill at any
moment leaves nothing to repair. The folder lies below /tmp, not below TMPDIR, which differs between jobs, nor
below /run/user, which goes when the user logs out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from monitoring.journal.atomic_file import write_atomically

# Where everybody can write: what is found there is refused unless it is private.
PLACE = Path("/tmp")

# Longer than any path of Linux.
PATH_BYTES = 4096

NAME_LENGTH = 32


class SharedPort:
    """The runs that share `host:port`. Nothing here raises: without a private folder there are none."""

    def __init__(self, host: str, port: int, *, place: Path = PLACE) -> None:
        self._user = place / f"kharness-{os.getuid()}"
        self._folder = self._user / _name(f"{host}:{port}")

    def identity(self) -> str:
        """Return what identifies the folder to all who see the same; empty without a private one."""
        with contextlib.suppress(OSError):
            if _private(self._user) and _private(self._folder):
                status = self._folder.stat()
                return f"{status.st_dev}:{status.st_ino}"
        return ""

    def open(self) -> None:
        """Have a folder, so that others find who shares the port before there is a run."""
        with contextlib.suppress(OSError):
            for folder in (self._user, self._folder):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)

    def add(self, run: Path) -> bool:
        """Have a run shown; False if it was there already, or cannot be."""
        file = self._file(run)
        self.open()
        with contextlib.suppress(OSError):
            if self.identity() and not file.exists():
                write_atomically(file, os.fsencode(run), durable=False)
                return True
        return False

    def place_for(self, name: str) -> Path:
        """Return the path where a monitor, which has no directory, writes what is to be shown."""
        return self._user / name

    def remove(self, run: Path) -> None:
        """Have it shown no more; the last one takes the folder along."""
        with contextlib.suppress(OSError):
            self._file(run).unlink()
            self._folder.rmdir()

    def leave(self) -> None:
        """Remove the folder if nothing is shown by it."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def runs(self) -> Iterator[Path]:
        """Yield the directories of the runs, of which some may not be there any more."""
        if not self.identity():
            return
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._folder)):
                file = self._folder / name
                with contextlib.suppress(OSError):
                    run = Path(os.fsdecode(_read(file)))
                    # one whose name is not that of what is in it was not written by `add`
                    if self._file(run) == file:
                        yield run

    def _file(self, run: Path) -> Path:
        return self._folder / _name(run)


def _name(what: str | Path) -> str:
    """Return a file name for any text: users choose the names of runs and of addresses."""
    return hashlib.sha256(os.fsencode(what)).hexdigest()[:NAME_LENGTH]


def _private(folder: Path) -> bool:
    """Whether it is a folder, and this user's alone; not a link to one, which others may change."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _read(file: Path) -> bytes:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(fd, PATH_BYTES)
    finally:
        os.close(fd)
