"""Tokenizers between text and tokens (uint16): bytes, characters, or GPT-2's byte-pair encoding.

A tokenizer is known by its SHA-256: the same one gives the same tokens on every machine and in every version.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kharness.training.errors import DatasetError

if TYPE_CHECKING:
    import numpy.typing as npt

# What a shard's uint16 can hold.
MOST_TOKENS = 1 << 16
# Ends a document where its text is bytes or characters: no text file has it in its text.
NUL = "\0"


class Tokenizer(ABC):
    """One way to write text as tokens."""

    name: str
    """`bytes`, `chars` or `gpt2`."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Every token is below it."""

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Which tokenizer this is."""

    @property
    @abstractmethod
    def end_of_document(self) -> int | None:
        """The token between two documents; None where it writes single texts only."""

    @abstractmethod
    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        """The tokens of a text, in which nothing is special."""

    @abstractmethod
    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; a replacement character for bytes that are no UTF-8."""

    def described(self) -> dict[str, Any]:
        """Return the JSON description from which `from_description` builds it again."""
        return {"name": self.name, "vocabulary": self.vocabulary, "sha256": self.sha256}


@dataclass(frozen=True)
class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8."""

    name: str = "bytes"
    vocabulary: int = 256
    end_of_document: int | None = ord(NUL)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(b"bytes of UTF-8").hexdigest()

    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16)

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(tokens).decode(errors="replace")


@dataclass(frozen=True)
class CharTokenizer(Tokenizer):
    """The characters of one text, in the order of their code points."""

    characters: str
    name: str = "chars"

    @classmethod
    def of(cls, characters: Iterable[str], *, documents: int) -> CharTokenizer:
        """Tokenize by these characters; with several documents NUL, which separates them, is one more."""
        found = set(characters) | ({NUL} if documents > 1 else set())
        check_vocabulary("chars", len(found), hint="train on bytes instead: TOKENIZER=bytes")
        return cls("".join(sorted(found)))

    @property
    def vocabulary(self) -> int:
        return len(self.characters)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(b"characters " + self.characters.encode()).hexdigest()

    @property
    def end_of_document(self) -> int | None:
        return 0 if self.characters.startswith(NUL) else None

    @cached_property
    def _code_points(self) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.characters.encode("utf-32-le"), dtype=np.uint32)

    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        """DatasetError for a character that the text of this tokenizer did not have."""
        found = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        tokens = np.searchsorted(self._code_points, found)
        tokens[tokens == self.vocabulary] = 0
        if (strange := self._code_points[tokens] != found).any():
            raise DatasetError(f"{chr(int(found[strange][0]))!r} is none of the characters of this tokenizer")
        return tokens.astype(np.uint16)

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.characters[token] for token in tokens)

    def described(self) -> dict[str, Any]:
        return {**super().described(), "characters": self.characters}


@dataclass(frozen=True)
class BpeTokenizer(Tokenizer):
    """GPT-2's byte-pair encoding, by tiktoken, from a verified vocabulary."""

    ranks: Mapping[bytes, int] = field(repr=False)
    name: str = "gpt2"

    # That of GPT-2's release, as tiktoken writes it: the same pieces, found faster.
    PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

    @classmethod
    def read(cls, place: Path) -> BpeTokenizer:
        """Read a file or folder; DatasetError if that is not GPT-2's vocabulary, or without tiktoken."""
        _tiktoken()  # it is missing now, or not at all
        ranks = read_ranks(place)
        check_vocabulary(
            str(place), len(ranks) + 1, hint="GPT-2's vocabulary is the one that is read: 50,257 tokens"
        )
        if ranks_sha256(ranks) != GPT2_SHA256:
            raise DatasetError(
                f"{place}: not GPT-2's vocabulary", hint=f"its ranks must have SHA-256 {GPT2_SHA256}"
            )
        return cls(ranks)

    @property
    def vocabulary(self) -> int:
        return len(self.ranks) + 1

    @property
    def sha256(self) -> str:
        return GPT2_SHA256

    @property
    def end_of_document(self) -> int | None:
        return len(self.ranks)

    @cached_property
    def _encoding(self) -> Any:
        special = {"<|endoftext|>": len(self.ranks)}
        return _tiktoken().Encoding(
            "gpt2", pat_str=self.PATTERN, mergeable_ranks=dict(self.ranks), special_tokens=special
        )

    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        found: npt.NDArray[np.uint32] = self._encoding.encode_to_numpy(text, disallowed_special=())
        return found.astype(np.uint16)

    def decode(self, tokens: Iterable[int]) -> str:
        text: str = self._encoding.decode(list(tokens))
        return text


# Of the 50,256 ranks in tiktoken's form, which is the file that OpenAI publishes as r50k_base.tiktoken.
GPT2_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


def _tiktoken() -> Any:
    try:
        import tiktoken
    except ImportError as error:
        raise DatasetError("tiktoken is not installed", hint="pip install tiktoken") from error
    return tiktoken


def check_vocabulary(what: str, tokens: int, *, hint: str) -> None:
    """DatasetError for a vocabulary that uint16 cannot number."""
    if tokens > MOST_TOKENS:
        raise DatasetError(
            f"{what}: {tokens:,} tokens, where shards (uint16) hold at most {MOST_TOKENS:,} different ones",
            hint=hint,
        )


def from_description(description: Mapping[str, Any], *, vocabulary: Path) -> Tokenizer:
    """The tokenizer of prepared tokens; DatasetError if it is another one here, or cannot be had."""
    name = description["name"]
    if name == "bytes":
        return ByteTokenizer()
    if name == "chars":
        return CharTokenizer(description["characters"])
    return BpeTokenizer.read(vocabulary)


# The same merges under the names that OpenAI, Hugging Face and tiktoken give them.
MERGES = ("vocab.bpe", "merges.txt")
RANKS = ("r50k_base.tiktoken", "gpt2.tiktoken")
# Bytes, uncompressed; far above any vocabulary there is, so that no file can fill the memory.
_LARGEST = 1 << 26


def read_ranks(place: Path) -> dict[bytes, int]:
    """GPT-2's tokens and their ranks, in the order of merging, from a file or a folder with one of the names.

    Nothing is downloaded: `vocab.bpe` is shipped in gpt2/vocabulary, and other files are accepted if they say
    the same. Whoever reads them compares `ranks_sha256` with what is published.
    """
    path = _file(place)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_LARGEST)
        merges = path.name.removesuffix(".gz").endswith(MERGES)
        return _from_merges(content.decode()) if merges else _from_ranks(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {str(error).lower()}", hint=_HINT) from error
    except (ValueError, KeyError) as error:
        raise DatasetError(f"{path}: not a vocabulary of merges or ranks", hint=_HINT) from error


def ranks_sha256(ranks: Mapping[bytes, int]) -> str:
    """Over lines `base64(token) rank` in the order of ranks: the form in which tiktoken's are published."""
    lines = (base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


_NAMES = (*MERGES, *RANKS)
_HINT = f"TOKENIZER_VOCABULARY names a folder with {', '.join(_NAMES)} or one of these compressed (.gz)"


def _file(place: Path) -> Path:
    if place.is_file():
        return place
    for name in _NAMES:
        for path in (place / name, place / f"{name}.gz"):
            if path.is_file():
                return path
    raise DatasetError(f"{place} holds no vocabulary of GPT-2", hint=_HINT)


def _from_merges(text: str) -> dict[bytes, int]:
    """Bytes first, then a token for each line `left right`.

    A byte is written as a printable character: as itself if it is one, else as the next one from U+0100 on.
    Source: https://github.com/openai/gpt-2, encoder.py, bytes_to_unicode
    """
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
    ranks = {bytes([byte]): rank for rank, byte in enumerate([*printable, *others])}
    for line in filter(None, text.split("\n")[1:]):  # the first one is the version
        ranks[bytes(byte_of[character] for character in line.replace(" ", ""))] = len(ranks)
    return ranks


def _from_ranks(content: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in content.splitlines() if line)
    return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
