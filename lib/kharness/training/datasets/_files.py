"""A dataset on disk: named files of known content, each plain or gzip-compressed."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.errors import DatasetError

Say = Callable[[str], None]


@dataclass(frozen=True)
class DatasetFile:
    """One file, identified by its uncompressed content: compressed bytes differ from gzip to gzip."""

    name: str
    sha256: str
    size: int
    """Bytes, uncompressed."""
    suffix: str = ".gz"
    """Suffix of the file at the mirrors and on disk; empty for one that is not compressed there."""

    def matches(self, content: bytes) -> bool:
        """Whether `content`, uncompressed, is this file."""
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256

    def read(self, path: Path, *, is_packed: bool) -> bytes:
        """The uncompressed content, at most one byte more than it should have."""
        with gzip.open(path) if is_packed else path.open("rb") as content:
            return content.read(self.size + 1)

    def find(self, folder: Path) -> Path | None:
        """Where the file is in `folder`, as NAME.gz or NAME; None if it is not."""
        return next(
            (path for path in (folder / f"{self.name}.gz", folder / self.name) if path.is_file()), None
        )


@dataclass(frozen=True)
class Dataset:
    """The files of a dataset and where they can be downloaded."""

    name: str
    files: tuple[DatasetFile, ...]
    mirrors: tuple[str, ...] = ()
    """Addresses under which every file is NAME and its suffix."""

    @property
    def sha256(self) -> str:
        """Over the SHA-256 of every file: which data this is."""
        return hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()

    def check(self, folder: Path, *, hint: str) -> None:
        """DatasetError if a file is missing; what is in them is verified when they are read."""
        for file in self.files:
            if file.find(folder) is None:
                raise DatasetError(f"{folder / file.name}{file.suffix} does not exist", hint=hint)


@dataclass(frozen=True)
class DataFolder:
    """Options of a dataset whose files are in the folder of all."""

    data_dir: str
    """Folder of all datasets; a relative path starts at the repository."""

    def folder(self, root: Path) -> Path:
        """Where all datasets are."""
        return root / asked_path("DATA_DIR", self.data_dir)


@dataclass(frozen=True)
class Sources:
    """Where the files of datasets come from."""

    local: Path | None = None
    """A folder of the user's, then the only source."""
    mirrors: Sequence[str] = ()
    """Addresses instead of the dataset's own."""
    say: Say = print
    """Prints a line for each file."""


def read_verified(folder: Path, file: DatasetFile, *, hint: str) -> bytes:
    """The uncompressed content of a file; DatasetError, with this hint, if it is missing or damaged."""
    path = file.find(folder)
    if path is None:
        raise DatasetError(f"{folder / file.name}.gz does not exist", hint=hint)
    try:
        content = file.read(path, is_packed=path.name != file.name)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}", hint=hint) from error
    if not file.matches(content):
        found = hashlib.sha256(content).hexdigest()[:16]
        raise DatasetError(
            f"{path} is damaged: its content has SHA-256 {found}…, not {file.sha256[:16]}…", hint=hint
        )
    return content
