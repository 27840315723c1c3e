"""Text to be tokenized: pieces of documents, each with the position from which the next one is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
