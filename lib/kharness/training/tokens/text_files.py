"""A text file, or the text files of a folder, as a source of tokens: the end of the text is for validation.

What is no text (a NUL byte, or not UTF-8) is skipped in a folder and an error as a single file. Links to
files are followed and links to folders are not, so there are no loops; hidden files and folders are left out.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from kharness.config.output import printable
from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import LARGEST_PIECE, TRAIN, VALIDATION, Piece, Position, good_cut
from monitoring.errors import refusal

# Of the bytes, files in the order of their names; what follows is for validation.
TRAIN_TENTHS = 9
_BLOCK = 1 << 20


@dataclass(frozen=True)
class TextFile:
    """A file as it was when it was scanned."""

    path: Path
    name: str
    """Below the folder."""
    size: int
    modified_ns: int
    sha256: str = ""


@dataclass(frozen=True)
class TextFiles:
    """Files of text, scanned: each is a document."""

    place: Path
    files: tuple[TextFile, ...]
    characters: frozenset[str] = field(repr=False)
    """All of the text; empty if they were not collected."""
    largest_piece: int = LARGEST_PIECE

    @classmethod
    def scan(cls, place: Path, *, say: Callable[[str], None], collect_characters: bool = False) -> TextFiles:
        """Read everything once: which files are text, and what is in them. DatasetError if none is."""
        single = place.is_file()
        texts, skipped, characters = [], [], set[str]()
        for file in found_files(place):
            try:
                sha256 = _scanned(file, characters if collect_characters else None)
            except _NotText as error:
                if single:
                    raise DatasetError(f"{file.path}: {error}", hint="give a file of UTF-8 text") from None
                skipped.append(printable(file.name))
                continue
            if file.size:
                texts.append(replace(file, sha256=sha256))
        if skipped:
            more = f" and {len(skipped) - 3:,} more" if len(skipped) > 3 else ""
            say(f"{place}: skipping what is not UTF-8 text: {', '.join(skipped[:3])}{more}")
        if not texts:
            raise DatasetError(f"{place} holds no text", hint="name a file or folder of UTF-8 text")
        return cls(place, tuple(texts), frozenset(characters))

    @property
    def sha256(self) -> str:
        """Over the names and contents of all files; a single file's name does not count."""
        named = [(file.name if len(self.files) > 1 else "", file.sha256) for file in self.files]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()

    def described(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "files": len(self.files), "bytes": sum(f.size for f in self.files)}

    def pieces(self, position: Position = ()) -> Iterator[Piece]:
        """Yield the text in pieces; DatasetError if a file changed since the scan."""
        first, offset = position or (0, 0)
        end_of_training = sum(file.size for file in self.files) * TRAIN_TENTHS // 10
        start = 0
        for index, file in enumerate(self.files):
            if index >= first:
                with _opened(file) as content:
                    boundary = min(max(end_of_training - start, 0), file.size)
                    boundary = boundary if boundary == file.size else _character_at(content, boundary)
                    yield from self._of_file(index, content, offset if index == first else 0, boundary)
            start += file.size

    def _of_file(self, index: int, content: BinaryIO, offset: int, boundary: int) -> Iterator[Piece]:
        file = self.files[index]
        while offset < file.size:
            end = boundary if offset < boundary else file.size
            content.seek(offset)
            raw = content.read(min(self.largest_piece, end - offset))
            text = _text(raw, file)
            if offset + len(raw) < end:
                text = text[: good_cut(text)]
            split = TRAIN if offset < boundary else VALIDATION
            offset += len(text.encode())
            ended = offset == file.size
            after = (index + 1, 0) if ended else (index, offset)
            yield Piece(text, split, ends_document=ended and len(self.files) > 1, after=after)


def found_files(place: Path) -> list[TextFile]:
    """The regular files of a folder in the order of their names, or the file itself; none of them is read."""
    if not place.exists():
        raise DatasetError(f"{place} does not exist", hint="DATASET_TEXT_PATH names a text file or folder")
    found = []
    for path in _below(place) if place.is_dir() else [place]:
        try:
            status = path.stat()
        except OSError:  # a link that leads nowhere, or to itself
            continue
        if stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
            name = str(path.relative_to(place)) if path != place else path.name
            found.append(TextFile(path, name, status.st_size, status.st_mtime_ns))
    return sorted(found, key=lambda file: file.name)


def stat_sha256(place: Path) -> str:
    """Over names, sizes and times of change: whether anything is different, without reading it."""
    sha256 = hashlib.sha256()
    for file in found_files(place):
        sha256.update(f"{file.name}\0{file.size} {file.modified_ns}\n".encode(errors="surrogateescape"))
    return sha256.hexdigest()


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_refuse, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent) / name for name in names if not name.startswith("."))


def _refuse(error: OSError) -> None:
    raise DatasetError(f"{error.filename} cannot be read: {refusal(error)}") from error


class _NotText(Exception):
    """A file that is no UTF-8 text."""


def _scanned(file: TextFile, characters: set[str] | None) -> str:
    """The SHA-256 of a file that is text; its characters are added to those."""
    sha256, decoder, position = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), 0
    with _opened(file) as content:
        while block := content.read(_BLOCK):
            begun = position - len(decoder.getstate()[0])
            position += len(block)
            if b"\0" in block:
                raise _NotText("not text: it has a NUL byte")
            sha256.update(block)
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as error:
                raise _NotText(f"not UTF-8 at byte {begun + error.start:,}") from None
            if characters is not None:
                characters.update(text)
    if decoder.getstate()[0]:
        raise _NotText("not UTF-8: its last character is cut off")
    return sha256.hexdigest()


@contextmanager
def _opened(file: TextFile) -> Iterator[BinaryIO]:
    """DatasetError if it cannot be read, or is not the file that was scanned, at the end either."""
    try:
        with file.path.open("rb") as content:
            _check_unchanged(content, file)
            yield content
            _check_unchanged(content, file)
    except OSError as error:
        error.filename = str(file.path)
        _refuse(error)


def _check_unchanged(content: BinaryIO, file: TextFile) -> None:
    status = os.fstat(content.fileno())
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns):
        raise _changed(file)


def _changed(file: TextFile) -> DatasetError:
    return DatasetError(
        f"{file.path} changed while it was read", hint="run it again when nothing writes to it"
    )


def _character_at(content: BinaryIO, offset: int) -> int:
    """The first byte of the character in which a byte lies."""
    content.seek(max(offset - 3, 0))
    before = content.read(4 if offset >= 3 else offset + 1)
    while offset and before and before[-1] & 0xC0 == 0x80:
        offset, before = offset - 1, before[:-1]
    return offset


def _text(raw: bytes, file: TextFile) -> str:
    """The text of bytes that may end within a character, without that one."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        raise _changed(file) from None
    if not text:
        raise _changed(file)
    return text
