"""Files of a run by the hash of their content: once for all runs of a folder, and verified.

RUN/artifacts/HASH.NAME is a hard link to ../.artifacts/HASH where the file system has links, else a copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from monitoring.errors import refusal
from monitoring.host.name import in_file_names
from monitoring.host.small_file import without_waiting
from monitoring.journal.atomic_file import create, name_beside
from monitoring.journal.files import ARTIFACTS, JOURNAL
from monitoring.journal.records import read_records

CHUNK = 2**20
# Hexadecimal digits of the hash in a file's name.
DIGITS = 16
# Nobody writes into content that other runs share.
MODE = 0o444


@dataclass(frozen=True)
class Artifact:
    """A file as its record names it."""

    file: str
    """Path in the run directory."""
    sha256: str
    bytes: int


def keep_bytes(run_dir: Path, name: str, content: bytes) -> Artifact:
    """Keep some content in the run directory; OSError if that cannot be."""
    digest = hashlib.sha256(content).hexdigest()
    kept = Artifact(_place(name, digest), digest, len(content))
    if not (run_dir / kept.file).exists():
        with _new(run_dir / kept.file) as file:
            file.write(content)
    return kept


def keep_file(run_dir: Path, name: str, source: Path) -> Artifact:
    """Keep a file's content; runs in one folder share it. OSError or ValueError for what is no file."""
    store = run_dir.parent / f".{ARTIFACTS}"
    with open(source, "rb", opener=without_waiting) as given:
        if not stat.S_ISREG(os.fstat(given.fileno()).st_mode):
            raise ValueError(f"{source} is not a regular file")
        digest = hashlib.file_digest(given, "sha256").hexdigest()
        size = given.tell()
        kept, shared = Artifact(_place(name, digest), digest, size), store / digest
        if not shared.exists() or shared.stat().st_size != size:
            given.seek(0)
            with _new(shared) as file:
                check = hashlib.sha256()
                while part := given.read(CHUNK):
                    check.update(part)
                    file.write(part)
                if check.hexdigest() != digest:
                    raise ValueError(f"{source} changed while it was read")
    path = run_dir / kept.file
    path.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        try:
            os.link(shared, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with _new(path) as file, shared.open("rb") as content:
                while part := content.read(CHUNK):
                    file.write(part)
    return kept


def damaged_files(run_dir: Path) -> Iterator[str]:
    """Yield a sentence for each file that the journal names and that is not what it was."""
    for record, _ in read_records(run_dir / JOURNAL):
        named = record.get(ARTIFACTS)
        for name, about in named.items() if isinstance(named, dict) else ():
            path = run_dir / str(about["file"])
            try:
                with path.open("rb") as file:
                    same = hashlib.file_digest(file, "sha256").hexdigest() == about["sha256"]
            except OSError as error:
                yield f"{name}: {path} cannot be read: {refusal(error)}"
                continue
            if not same:
                yield f"{name}: {path} is not what was logged"


def as_record(kept: Artifact) -> dict[str, object]:
    """Return the journal's entry for the file."""
    return asdict(kept)


def _place(name: str, digest: str) -> str:
    return f"{ARTIFACTS}/{digest[:DIGITS]}.{in_file_names(Path(name).name or 'file')}"


@contextlib.contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A file that is there, whole and read-only, from the end of the block on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = name_beside(path)
    try:
        with create(temporary) as file:
            yield file
            os.fchmod(file.fileno(), MODE)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
