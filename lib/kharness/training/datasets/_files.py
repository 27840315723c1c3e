"""A dataset on disk: named files of known content, each plain or gzip-compressed."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.errors import DatasetError

# IDX, the format of the MNIST files: two zero bytes, type 8 (unsigned byte), number of dimensions, then
# each dimension as a big-endian 32-bit integer. http://yann.lecun.com/exdb/mnist/
_UNSIGNED_BYTE = 8

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


@dataclass(frozen=True)
class IdxArray:
    """Unsigned bytes in row-major order."""

    shape: tuple[int, ...]
    data: bytes | memoryview

    @classmethod
    def parse(cls, content: bytes, *, name: str) -> IdxArray:
        """An array from the bytes of an IDX file; DatasetError names what is wrong with `name`."""
        if len(content) < 4 or content[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
            raise DatasetError(f"{name}: not an IDX file of unsigned bytes", hint="fetch the file again")
        start = 4 + 4 * content[3]
        if len(content) < start:
            raise DatasetError(f"{name}: the IDX header is cut short", hint="fetch the file again")
        shape = struct.unpack(f">{content[3]}I", content[4:start])
        if len(content) - start != prod(shape):
            raise DatasetError(
                f"{name}: {len(content) - start} bytes where its header {shape} needs {prod(shape)}",
                hint="fetch the file again",
            )
        return cls(shape, memoryview(content)[start:])

    def dump(self) -> bytes:
        """The bytes of an IDX file."""
        header = struct.pack(f">BBBB{len(self.shape)}I", 0, 0, _UNSIGNED_BYTE, len(self.shape), *self.shape)
        return header + self.data

    def rows(self, indices: list[int]) -> IdxArray:
        """The chosen rows, in the given order."""
        length = prod(self.shape[1:])
        data = b"".join(self.data[i * length : (i + 1) * length] for i in indices)
        return IdxArray((len(indices), *self.shape[1:]), data)


def read_verified(folder: Path, file: DatasetFile, *, hint: str) -> bytes:
    """The uncompressed content of a file; DatasetError, with this hint, if it is missing or damaged."""
    path = file.find(folder)
    if path is None:
        raise DatasetError(f"{folder / file.name}.gz does not exist", hint=hint)
    try:
        content = read_content(path, limit=file.size)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}", hint=hint) from error
    if not file.matches(content):
        found = hashlib.sha256(content).hexdigest()[:16]
        raise DatasetError(
            f"{path} is damaged: its content has SHA-256 {found}…, not {file.sha256[:16]}…", hint=hint
        )
    return content


def read_content(path: Path, *, limit: int) -> bytes:
    """The uncompressed content, at most one byte more than `limit` of it."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return file.read(limit + 1)
