"""Writes files atomically: under another name in the same folder, then renamed.

That name is random, and the file is made, never opened: what is there already (a link to another file,
say) is neither followed nor overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from monitoring.errors import is_full
from monitoring.host.process import process_started

# Seconds after which a half-written file counts as abandoned; its process may run on another host.
LEFT_AFTER = 3600.0
# Bytes of a block in `st_blocks` (stat(2)); what a folder has room for that is not full: a few records.
BLOCK, ROOM = 512, 64 * 1024


def write_atomically(path: Path, data: bytes, *, durable: bool = True, prompt: bool = False) -> None:
    """Replace `path` by `data` in one step; OSError, which names `path`, leaves the old file as it was.

    A `durable` one is on disk on return, so that a loss of power leaves one of the two as well; with one that
    is `prompt` no training waits for the disk. Two processes writing at once leave one of their contents,
    never a mixture. A link at `path` is replaced, not followed.
    """
    with replacing(path, durable=durable, prompt=prompt) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True, prompt: bool = False) -> Iterator[BinaryIO]:
    """A new file to write, which is `path` from the end of the block on; the same for larger contents.

    If the block raises, `path` stays as it was.
    """
    temporary = name_beside(path)
    try:
        with create(temporary) as file:
            yield file
            file.flush()
            if durable:
                # before the rename: a loss of power could else leave the new name without its contents
                os.fsync(file.fileno())
        if prompt:
            _replace_promptly(temporary, path)
        else:
            os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # callers know `path`, not the temporary name
        error.filename, error.filename2 = str(path), None
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_within(path: Path, data: bytes) -> None:
    """Write over a file of text where the disk is full, in the blocks that it has: blanks fill what is left.

    OSError where they do not suffice, or the file has other names or is a link. It is no replacement: a
    loss of power may leave a mixture.
    """
    with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
        status = os.fstat(file.fileno())
        if len(data) > status.st_blocks * BLOCK or status.st_nlink > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.write(data.ljust(status.st_size))
        file.flush()
        os.fsync(file.fileno())


def has_room(folder: Path, size: int = ROOM) -> bool:
    """Whether so many bytes can be written into a folder; True where that cannot be found out."""
    temporary = folder / f".room.{os.getpid()}.{os.urandom(8).hex()}.tmp"
    try:
        with create(temporary) as file:
            file.write(bytes(size))
    except OSError as error:
        return not is_full(error)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _replace_promptly(temporary: Path, path: Path) -> None:
    """Replace `path` as os.replace does, without the flush to disk that ext4 puts before a rename.

    When a rename replaces a file, ext4 first writes out the new one's blocks (auto_da_alloc); it does not
    when two files exchange their names (fs/ext4/namei.c: ext4_rename, ext4_cross_rename).
    """
    from monitoring.host.libc import exchange  # here: it loads ctypes, which most processes do without

    if not exchange(temporary, path):
        os.replace(temporary, path)
        return
    try:
        # since the exchange this name is the old file's
        temporary.unlink()
    except OSError:  # it is a folder
        exchange(temporary, path)
        raise


def name_beside(path: Path) -> Path:
    """Return a new hidden file name next to `path` for its replacement; it cannot be guessed.

    What killed processes left under such names is removed, once per process and path.
    """
    _remove_leftovers(path)
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}.tmp")


def create(path: Path) -> BinaryIO:
    """Make a file with the permissions of any new one; FileExistsError if the name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "wb")


def sync_folder(folder: Path) -> None:
    """Return when renames in the folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=4096)
def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes left, once per process: this one's own files are never among them."""
    with contextlib.suppress(OSError):  # the folder cannot be read, or not written: the write reports that
        for name in os.listdir(path.parent):
            if not name.startswith(f".{path.name}."):  # as nearly all: to compile the pattern takes longest
                continue
            left = re.fullmatch(r"(\d{1,9})\.(?:[0-9a-f]{16}\.)?tmp", name.removeprefix(f".{path.name}."))
            if left and process_started(int(left[1])) is None:
                other = path.with_name(name)
                if time.time() - other.lstat().st_mtime > LEFT_AFTER:
                    other.unlink()
