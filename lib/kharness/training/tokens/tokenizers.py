"""Tokenizers between text and tokens (uint16): bytes, characters, or GPT-2's byte-pair encoding.

A tokenizer is known by its SHA-256: the same one gives the same tokens on every machine and in every version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kharness.training.errors import DatasetError
from kharness.training.tokens.vocabulary import ranks_sha256, read_ranks

if TYPE_CHECKING:
    import numpy.typing as npt

# What a shard's uint16 can hold.
MOST_TOKENS = 1 << 16
# Ends a document where its text is bytes or characters: no text file has it in its text.
NUL = "\0"


class Tokenizer(Protocol):
    """One way to write text as tokens."""

    @property
    def name(self) -> str:
        """`bytes`, `chars` or `gpt2`."""

    @property
    def vocabulary(self) -> int:
        """Every token is below it."""

    @property
    def sha256(self) -> str:
        """Which tokenizer this is."""

    @property
    def end_of_document(self) -> int | None:
        """The token between two documents; None where it writes single texts only."""

    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        """The tokens of a text, in which nothing is special."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; a replacement character for bytes that are no UTF-8."""

    def described(self) -> dict[str, Any]:
        """Return the JSON description from which `from_description` builds it again."""


@dataclass(frozen=True)
class ByteTokenizer:
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

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "vocabulary": self.vocabulary, "sha256": self.sha256}


@dataclass(frozen=True)
class CharTokenizer:
    """The characters of one text, in the order of their code points."""

    characters: str
    name: str = "chars"

    @classmethod
    def of(cls, characters: Iterable[str], *, documents: int) -> CharTokenizer:
        """That of these characters; with several documents NUL, which separates them, is one more."""
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
        mine = {"name": self.name, "vocabulary": self.vocabulary, "sha256": self.sha256}
        return {**mine, "characters": self.characters}


@dataclass(frozen=True)
class BpeTokenizer:
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

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "vocabulary": self.vocabulary, "sha256": self.sha256}


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
