"""Tokens as a training reads them: any window of a stream, from memory-mapped shards."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import TOKEN_BYTES, Shard
from kharness.training.tokens.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

# Bytes below which a stream is read as it comes.
_SMALL = 1 << 26


class TokenStream:
    """The tokens of a split, one shard after the other; no token belongs to two."""

    def __init__(
        self, shards: Sequence[npt.NDArray[np.uint16]], maps: Sequence[mmap.mmap | None] = ()
    ) -> None:
        self._shards, self._maps = shards, maps or [None] * len(shards)
        self._ends = list(accumulate(len(shard) for shard in shards))
        self._views: dict[int, npt.NDArray[np.uint16]] = {}
        # What fits into the memory several times is there after its verification.
        self._is_read = not maps or len(self) * TOKEN_BYTES < _SMALL

    @classmethod
    def mapped(cls, folder: Path, shards: Iterable[Shard]) -> TokenStream:
        """Return streams over files, of which nothing is read yet."""
        maps = [_mapped(folder / shard.file) for shard in shards]
        return cls([np.frombuffer(found, dtype="<u2") for found in maps], maps)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def windows(self, starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint16]:
        """`length` tokens from each start on, (n, length), also across the end of a shard."""
        if len(self._shards) != 1 or not length:
            found = [self._window(start, length) for start in starts.tolist()]
            return np.stack(found) if found else np.empty((0, length), dtype=np.uint16)
        if length not in self._views:  # making it takes longer than reading a small batch
            self._views[length] = sliding_window_view(self._shards[0], length)
        if starts.min(initial=0) < 0:
            raise IndexError(f"no tokens from {starts.min()} on")
        return self._views[length][starts]

    def read_ahead(self, starts: npt.NDArray[np.int64], length: int) -> None:
        """Have the system read these windows in the background; returns at once."""
        if self._is_read:
            return
        for start in starts.tolist():
            for number, first, last in self._parts(start, length):
                if (found := self._maps[number]) is not None:
                    # Of pages: whole ones only, and none after the file's last.
                    begin = first * TOKEN_BYTES // mmap.PAGESIZE * mmap.PAGESIZE
                    found.madvise(mmap.MADV_WILLNEED, begin, last * TOKEN_BYTES - begin)

    def _window(self, start: int, length: int) -> npt.NDArray[np.uint16]:
        parts = [self._shards[number][first:last] for number, first, last in self._parts(start, length)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint16), *parts])

    def _parts(self, start: int, length: int) -> list[tuple[int, int, int]]:
        """Shard, first and last + 1 of each part of a window."""
        end = start + length
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"tokens {start} to {end} of {len(self)}")
        parts = []
        while start < end:
            number = bisect_right(self._ends, start)
            offset = self._ends[number] - len(self._shards[number])
            last = min(end, self._ends[number])
            parts.append((number, start - offset, last - offset))
            start = last
        return parts


@dataclass(frozen=True)
class TokenSplits:
    """The splits of a text dataset."""

    train: TokenStream
    validation: TokenStream
    open_tokenizer: Callable[[], Tokenizer]
    """For sampled text, not for training; DatasetError where its vocabulary or tiktoken is missing."""
    vocabulary: int
    """Every token is below it."""
    tokenizer_sha256: str
    sha256: str
    """Which data this is, the tokenizer included."""


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {str(error).lower()}") from error
    # Blocks are read in a random order: what lies beside them is not read along.
    found.madvise(mmap.MADV_RANDOM)
    return found
