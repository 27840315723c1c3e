"""Bring a dataset's files into a folder: from a local folder, or from mirrors.

Every file is verified before it gets its name; a partial download has another name, and is continued.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from pathlib import Path

from kharness.training.datasets._files import Dataset, DatasetFile, Say, Sources
from kharness.training.errors import DatasetError
from monitoring.errors import refusal
from monitoring.journal.atomic_file import create, sync_folder, write_atomically

# Seconds without a byte before a mirror counts as down.
TIMEOUT_S = 30
# Connections that may break off in mid-file before the next mirror is tried.
ATTEMPTS = 3
_CHUNK = 1 << 20


class _SourceError(Exception):
    """A mirror does not have the file; the next one is tried."""


class _MirrorDown(_SourceError):
    """A mirror does not answer at all, so there is no need to try the other files."""


def fetch_files(
    dataset: Dataset,
    folder: Path,
    sources: Sources,
    *,
    is_there: Callable[[], bool] = lambda: False,
    unpack: Callable[[Path], None] | None = None,
) -> Path:
    """The folder, with every file verified; those that are missing or damaged are fetched.

    Of an archive `is_there` says whether another process has done all of it meanwhile, and `unpack` takes the
    files out of it, one process at a time. DatasetError, leaving no partial file under a final name, if no
    source has one of them.
    """
    say = sources.say
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / ".lock"):
            if is_there():
                return folder
            missing = [file for file in dataset.files if not _is_intact(folder, file, say)]
            if sources.local is not None:
                _from_local(dataset, missing, sources.local, folder, say)
            else:
                _from_mirrors(dataset, missing, folder, sources.mirrors or dataset.mirrors, say)
            for path in folder.glob(".*.part"):  # of downloads that nothing can continue any more
                path.unlink()
            if unpack is not None:
                unpack(folder)
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be written: {refusal(error)}",
            hint="free some space, or choose another folder: make data CONFIG_DATA_DIR=folder",
        ) from error
    return folder


def _is_intact(folder: Path, file: DatasetFile, say: Say) -> bool:
    path = file.find(folder)
    if path is None:
        return False
    if file.matches(_content(path, file, is_packed=path.name != file.name)):
        say(f"{path}: intact")
        return True
    say(f"{path}: damaged, fetching it again")
    path.unlink()
    return False


def _content(path: Path, file: DatasetFile, *, is_packed: bool) -> bytes:
    """The uncompressed content; empty if it does not decompress."""
    try:
        return file.read(path, is_packed=is_packed)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


def _from_local(
    dataset: Dataset, missing: Sequence[DatasetFile], local: Path, folder: Path, say: Say
) -> None:
    """Copy from a folder of the user's; also from the layouts DIR/mnist and torchvision's DIR/MNIST/raw."""
    places = [local, local / dataset.name, local / dataset.name.upper() / "raw"]
    for file in missing:
        found = [path for place in places if (path := file.find(place))]
        if not found:
            raise DatasetError(
                f"{local} holds neither {file.name}.gz nor {file.name}",
                hint=f"the folder must hold {', '.join(f.name + '[.gz]' for f in dataset.files)}",
            )
        content = _content(found[0], file, is_packed=found[0].name != file.name)
        if not file.matches(content):
            raise DatasetError(
                f"{found[0]}: its content is not that of {dataset.name}'s {file.name}",
                hint=f"the SHA-256 of the uncompressed file must be {file.sha256}",
            )
        say(f"{_install(folder, file, content)}: copied from {found[0]}")


def _from_mirrors(
    dataset: Dataset, missing: Sequence[DatasetFile], folder: Path, mirrors: Sequence[str], say: Say
) -> None:
    are_up = False
    for mirror in mirrors:
        still = list(missing)
        for file in missing:
            url = f"{mirror.rstrip('/')}/{file.name}{file.suffix}"
            try:
                say(f"{_from_mirror(file, url, folder)}: fetched from {url}")
                still.remove(file)
            except _SourceError as error:
                say(f"{url}: {error}")
                if isinstance(error, _MirrorDown):
                    break
            are_up = True
        missing = still
    if missing:
        has = f"no mirror has {', '.join(file.name for file in missing)}"
        raise DatasetError(
            f"{dataset.name}: {has if are_up else 'no mirror is reachable from here'}",
            hint=f"fetch {', '.join(f.name + f.suffix for f in missing)} by other means, then "
            "make data DATA_DIR=the-folder-they-are-in",
        )


def _from_mirror(file: DatasetFile, url: str, folder: Path) -> Path:
    # Named for its source: mirrors may compress differently, so their bytes do not continue each other.
    part = folder / f".{file.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part"
    if part.is_symlink():  # not ours: what it leads to must not be written
        part.unlink()
    was_begun = part.exists()
    limit = file.size + file.size // 1000 + 1000  # gzip adds that much at most to what does not compress
    _download(url, part, limit=limit)
    # What an older version of the mirror's file began cannot be continued by a newer one: once more from the
    # start.
    if not file.matches(content := _content(part, file, is_packed=bool(file.suffix))) and was_begun:
        part.unlink()
        _download(url, part, limit=limit)
        content = _content(part, file, is_packed=bool(file.suffix))
    if not file.matches(content):
        part.unlink()
        raise _SourceError("its content is not that file (SHA-256 differs)")
    path = folder / f"{file.name}{file.suffix}"
    os.replace(part, path)
    sync_folder(folder)
    return path


def _download(url: str, part: Path, *, limit: int) -> None:
    """Download `url` to `part`, continuing what is there; its bytes are on disk on return."""
    reason = ""
    for _ in range(ATTEMPTS):
        have = part.stat().st_size if part.exists() else 0
        try:
            request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                # A server may answer a Range with 200 and the whole file (RFC 9110, 14.2): then it begins at
                # 0.
                if _save(response, part, have if response.status == 206 else 0, limit=limit):
                    return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416:  # 416: nothing beyond what is there
                raise _SourceError(f"the server answers {error.code} {error.reason}") from error
            # All of it was already here: a crash came between the last byte and the rename.
            if _total(error.headers) == have:
                return
            part.unlink()
            reason = "the server has a shorter file than was begun"
        except urllib.error.URLError as error:
            raise _MirrorDown(f"not reachable: {error.reason}") from error
        except ValueError as error:
            raise _MirrorDown(str(error)) from error
        except (http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
            reason = f"the connection broke off ({error})"
    raise _SourceError(reason)


def _total(headers: Message[str, str]) -> int | None:
    """The size in `Content-Range: bytes */123`."""
    size = headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _save(response: http.client.HTTPResponse, part: Path, offset: int, *, limit: int) -> bool:
    """Write a response from `offset` on; False if it was cut short."""
    expected = response.length
    received = 0
    # A new file rather than the old one emptied, which may be a link to somewhere else by now.
    with part.open("r+b") if offset else create(_gone(part)) as out:
        out.seek(offset)
        out.truncate()
        while chunk := response.read(_CHUNK):
            received += len(chunk)
            if offset + received > limit:
                raise _SourceError("it sends more than the file can have")
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return expected is None or received == expected


def _gone(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _install(folder: Path, file: DatasetFile, content: bytes) -> Path:
    """Write verified content under the file's name in one step."""
    path = folder / f"{file.name}{file.suffix}"
    write_atomically(path, gzip.compress(content, 6, mtime=0) if file.suffix else content)
    sync_folder(folder)
    return path


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Make concurrent calls take turns; the second finds the files already there."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
