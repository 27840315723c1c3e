"""Collections of documents: files of Parquet or JSON lines with a `text`, here or on the Hugging Face hub.

A document is for validation where the hash of its text says so, so that its copies are on the same side; or
all of a file's are, where a collection has files of its own for that.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from kharness.training.errors import DatasetError, first_line
from kharness.training.tokens.manifest import LARGEST_PIECE, TRAIN, VALIDATION, Piece, Position, cut

COLUMN = "text"
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")
# One document of so many is for validation.
ONE_OF = 200
# Rows that are in memory at once, and the bytes of one line of JSON.
_ROWS = 256
_LONGEST_LINE = 1 << 26

Open = Callable[[str], BinaryIO]


@dataclass(frozen=True)
class Documents:
    """Files of documents, read in this order."""

    names: tuple[str, ...]
    origin: Mapping[str, Any]
    """Which files these are, as JSON."""
    open_file: Open
    """Opens one for reading, at any position; OSError or DatasetError."""
    failures: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
    """Exceptions that reading them may raise."""
    largest_piece: int = LARGEST_PIECE

    @classmethod
    def in_folder(cls, folder: Path) -> Documents:
        """Those of a folder and of what is below it; DatasetError if it has none."""
        paths = sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
        if not paths:
            raise DatasetError(
                f"{folder} holds no documents", hint=f"it must have files {', '.join(SUFFIXES)} with `text`"
            )
        names = tuple(str(path.relative_to(folder)) for path in paths)
        sizes = {name: path.stat().st_size for name, path in zip(names, paths, strict=True)}
        return cls(names, {"folder": str(folder), "files": sizes}, lambda name: (folder / name).open("rb"))

    def described(self) -> Mapping[str, Any]:
        return self.origin

    def pieces(self, position: Position = ()) -> Iterator[Piece]:
        """Positions are file, row and piece of a document."""
        first_file, first_row, first_piece = position or (0, 0, 0)
        has_validation = any(_is_validation(name) for name in self.names)
        for file in range(first_file, len(self.names)):
            name = self.names[file]
            split = (VALIDATION if _is_validation(name) else TRAIN) if has_validation else None
            begin = first_row if file == first_file else 0
            for row, text in enumerate(self._texts(name, begin), begin):
                done = first_piece if (file, row) == (first_file, first_row) else 0
                yield from self._of_document(text, split or split_of(text), (file, row), done)

    def _of_document(self, text: str, split: str, at: tuple[int, int], done: int) -> Iterator[Piece]:
        parts = list(cut(text, largest=self.largest_piece))
        for number, part in enumerate(parts[done:], done + 1):
            ends = number == len(parts)
            yield Piece(part, split, ends, after=(at[0], at[1] + 1, 0) if ends else (*at, number))

    def _texts(self, name: str, first: int) -> Iterator[str]:
        with self._readable(name), self.open_file(name) as content:
            rows = (
                _parquet(content, name, first) if name.endswith(".parquet") else _lines(content, name, first)
            )
            yield from rows

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except self.failures as error:
            raise DatasetError(
                f"{name} cannot be read: {first_line(error)}",
                hint="make data continues where it was broken off",
            ) from error


def split_of(text: str) -> str:
    """The side of a document, by its text alone."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return VALIDATION if number % ONE_OF == 0 else TRAIN


def _is_validation(name: str) -> bool:
    return "valid" in name.rpartition("/")[2].lower()


def _parquet(content: BinaryIO, name: str, first: int) -> Iterator[str]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DatasetError("pyarrow is not installed", hint="pip install huggingface_hub pyarrow") from error
    try:
        file = pyarrow.parquet.ParquetFile(content, buffer_size=1 << 20, pre_buffer=False)
        if COLUMN not in file.schema_arrow.names:
            names = ", ".join(file.schema_arrow.names)
            raise DatasetError(f"{name} has no column {COLUMN!r}", hint=f"its columns: {names}")
        groups, skipped = list(range(file.num_row_groups)), 0
        while groups and skipped + (rows := file.metadata.row_group(groups[0]).num_rows) <= first:
            skipped += rows
            groups.pop(0)
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=[COLUMN]):
            texts = batch.column(0).to_pylist()
            yield from (text or "" for text in texts[max(first - skipped, 0) :])
            skipped += len(texts)
    except pyarrow.ArrowException as error:
        raise DatasetError(f"{name} is damaged: {error}", hint="fetch it again") from error


def _lines(content: BinaryIO, name: str, first: int) -> Iterator[str]:
    stream = gzip.GzipFile(fileobj=content) if name.endswith(".gz") else content
    for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b"")):
        if len(line) == _LONGEST_LINE:
            raise DatasetError(f"{name}:{number + 1}: a line of over {_LONGEST_LINE:,} bytes")
        if number < first:
            continue
        try:
            text = json.loads(line)[COLUMN]
            # Half of a surrogate pair, which JSON can have, is no character.
            yield text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DatasetError(f"{name}:{number + 1}: not a JSON object with a text {COLUMN!r}") from None


def on_hub(repository: str, pattern: str, *, local_form: str) -> Documents:
    """The files of a dataset on the Hugging Face hub, streamed: nothing of them is stored here.

    The commit that `main` is now becomes part of what they are. `local_form` is the hint where the hub
    cannot be reached.
    """
    try:
        from huggingface_hub import HfApi, HfFileSystem
        from huggingface_hub.errors import HFValidationError, HTTPError
    except ImportError as error:
        raise DatasetError(
            "huggingface_hub is not installed", hint="pip install huggingface_hub pyarrow"
        ) from error
    failures = (OSError, EOFError, zlib.error, HTTPError, HFValidationError)

    def open_file(name: str) -> BinaryIO:
        with _reached(repository, failures, local_form):
            path = f"datasets/{repository}@{info.sha}/{name}"
            found: BinaryIO = HfFileSystem().open(path, "rb", block_size=1 << 23)
            return found

    with _reached(repository, failures, local_form):
        info = HfApi().dataset_info(repository, revision="main")
    names = matching([file.rfilename for file in info.siblings or ()], pattern)
    if not names:
        raise DatasetError(f"{repository} has no files {pattern} on the hub", hint=local_form)
    return Documents(names, {"hub": repository, "commit": info.sha, "files": len(names)}, open_file, failures)


def matching(files: Iterable[str], pattern: str) -> tuple[str, ...]:
    """Those files of a repository that hold its documents, in the order of their names."""
    return tuple(name for name in sorted(files) if fnmatchcase(name, pattern) and name.endswith(SUFFIXES))


@contextmanager
def _reached(repository: str, failures: tuple[type[Exception], ...], local_form: str) -> Iterator[None]:
    try:
        yield
    except failures as error:
        raise DatasetError(
            f"{repository}: the hub cannot be reached: {first_line(error)}", hint=local_form
        ) from error
