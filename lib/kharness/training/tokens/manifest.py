"""A folder of prepared tokens: shards (uint16, little-endian, no header) and their manifest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kharness.training.errors import DatasetError
from monitoring.errors import refusal
from monitoring.journal.atomic_file import write_atomically

TRAIN, VALIDATION = "train", "validation"
SPLITS = (TRAIN, VALIDATION)

Position = tuple[int, ...]
"""Where in its source a piece begins, in the source's own numbers; () is the beginning."""

# Bytes or characters at most: bounds the memory, however long a line is.
LARGEST_PIECE = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A part of a document; cut so that its tokens are those it has within the entire text."""

    text: str
    split: str
    ends_document: bool
    after: Position
    """Where the next piece begins."""


class TextSource(Protocol):
    """Text that can be read again from any position that it gave."""

    def described(self) -> Mapping[str, Any]:
        """Description as JSON; a preparation of another source is not continued."""

    def pieces(self, position: Position) -> Iterator[Piece]:
        """The pieces from a position on, the same ones each time."""


# Everything up to a whitespace that follows something else. GPT-2's pattern does not look behind, and no run
# of whitespace is cut: both sides have the tokens that they have within the entire text.
_UP_TO_A_CUT = re.compile(r".*\S(?=[ \t\r\n])", re.DOTALL)


def good_cut(text: str) -> int:
    """Where to cut the end off a text that goes on; its length if it has no such place."""
    found = _UP_TO_A_CUT.match(text)
    return found.end() if found else len(text)


def cut(text: str, *, largest: int) -> Iterator[str]:
    """A text in pieces of at most so many characters."""
    start = 0
    while len(text) - start > largest:
        end = start + good_cut(text[start : start + largest])
        yield text[start:end]
        start = end
    yield text[start:]


MANIFEST = "manifest.json"
# Which shards have been read and found intact: their size, time of change and inode then.
_VERIFIED = ".verified.json"
FORMAT = 1
TOKEN_BYTES = 2
_HINT = "make data prepares it again"
_HINT_MISSING = "make data with the same options prepares it, gpt2/prepare_data.py with the same flags"


@dataclass(frozen=True)
class Shard:
    """One file of tokens."""

    file: str
    tokens: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything about prepared tokens but the tokens."""

    requested: Mapping[str, Any]
    """Request that the tokens were prepared for; a different one means preparing again."""
    source: Mapping[str, Any]
    """Where the text came from."""
    tokenizer: Mapping[str, Any]
    splits: Mapping[str, tuple[Shard, ...]]

    @property
    def sha256(self) -> str:
        """Which data this is: over the tokenizer and the tokens, and nothing of where they came from."""
        known = [
            self.tokenizer["sha256"],
            [[asdict(shard) for shard in self.splits[name]] for name in SPLITS],
        ]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()

    def tokens(self, split: str) -> int:
        """Tokens of a split."""
        return sum(shard.tokens for shard in self.splits[split])

    @property
    def shards(self) -> Iterator[Shard]:
        """Those of all splits."""
        return (shard for name in SPLITS for shard in self.splits[name])

    def write(self, folder: Path) -> None:
        """Write it as the folder's manifest, atomically."""
        content = {"format": FORMAT, "sha256": self.sha256, **asdict(self)}
        write_atomically(folder / MANIFEST, json.dumps(content, indent=1).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """DatasetError if it is missing or damaged, or if a shard is not as long as it says."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_bytes())
            if content.pop("format") != FORMAT:
                raise DatasetError(f"{path}: written by another version of kharness", hint=_HINT)
            sha256, splits = content.pop("sha256"), content.pop("splits")
            shards = {name: tuple(Shard(**shard) for shard in splits[name]) for name in SPLITS}
            found = cls(**content, splits=shards)
            intact = found.sha256 == sha256
        except FileNotFoundError:
            raise DatasetError(f"{path} does not exist", hint=_HINT_MISSING) from None
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {refusal(error)}") from error
        except (ValueError, TypeError, KeyError, AttributeError):
            intact = False
        if not intact:
            raise DatasetError(f"{path} is damaged", hint=_HINT)
        for shard in found.shards:
            _check_size(folder / shard.file, shard)
        return found


def check_intact(
    folder: Path, manifest: Manifest, *, say: Callable[[str], None], again: bool = False
) -> None:
    """Raise DatasetError if a shard differs from the manifest.

    All of it is read where that has not been done since it was written or moved, or `again`.
    """
    states = {shard.file: _state(folder / shard.file) for shard in manifest.shards}
    if not again and read_json(folder / _VERIFIED) == states:
        return
    size = sum(shard.tokens for shard in manifest.shards) * TOKEN_BYTES
    say(f"{folder}: verifying {size / 1e6:,.1f} MB")
    for shard in manifest.shards:
        if _sha256(folder / shard.file) != shard.sha256:
            raise DatasetError(f"{folder / shard.file} is damaged: its SHA-256 differs", hint=_HINT)
    with suppress(OSError):  # a folder that cannot be written is verified each time
        write_atomically(folder / _VERIFIED, json.dumps(states).encode(), durable=False)


def read_json(path: Path) -> Any:
    """Read a JSON file; None for one that is not there, or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _state(path: Path) -> Sequence[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _check_size(path: Path, shard: Shard) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{path}: {refusal(error)}", hint=_HINT) from error
    if size != shard.tokens * TOKEN_BYTES:
        raise DatasetError(
            f"{path} is damaged: {size:,} bytes instead of {shard.tokens * TOKEN_BYTES:,}", hint=_HINT
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
