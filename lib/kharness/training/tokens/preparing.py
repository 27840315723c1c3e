"""Prepare tokens: text through a tokenizer into shards, in bounded memory, resumable at any moment.

Everything is made in a hidden folder beside the final one, which appears when it is complete. A process that
was killed leaves that folder, with `progress.json`: what was on disk for certain, and the position in the
source that belongs to it. The next one continues there, and makes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import (
    FORMAT,
    LARGEST_PIECE,
    MANIFEST,
    SPLITS,
    TOKEN_BYTES,
    TRAIN,
    Manifest,
    Piece,
    Position,
    Shard,
    TextSource,
    check_intact,
    read_json,
)
from kharness.training.tokens.tokenizers import Tokenizer
from monitoring.errors import refusal
from monitoring.journal.atomic_file import sync_folder, write_atomically

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PROGRESS = "progress.json"
_BLOCK = 1 << 20
# Characters that wait for their tokens, at most: 32 pieces keep as many cores busy.
_MOST_WAITING = 32 * LARGEST_PIECE


@dataclass(frozen=True)
class Sizes:
    """How tokens are laid out on disk."""

    shard: int = 100_000_000
    """Tokens after which a shard ends, with the piece that reaches them."""
    save: int = 16_000_000
    """Tokens that a killed preparation has to make again, at most."""
    train: int = 0
    """Training tokens after which no more text is read, with the piece that reaches them; 0: all text."""


def prepare(
    folder: Path,
    source: TextSource,
    tokenizer: Tokenizer,
    *,
    requested: Mapping[str, Any],
    say: Callable[[str], None],
    sizes: Sizes | None = None,
    origin: Mapping[str, Any] | None = None,
) -> Manifest:
    """Make the folder of tokens, continuing what a killed process began; one process at a time.

    `origin` is what its manifest says of the source besides what the source is.

    DatasetError, leaving what was there before, if the text cannot be read or the disk is full.
    """
    building = folder.with_name(f".{folder.name}.part")
    try:
        manifest = _complete(building, requested, tokenizer)
        if manifest is None:
            work = _Preparation(building, source, tokenizer, requested, sizes or Sizes())
            if work.position:
                say(f"{folder}: continuing after {work.count:,} tokens")
            manifest = work.run(say=lambda line: say(f"{folder}: {line}"))
            manifest = replace(manifest, source={**manifest.source, **(origin or {})})
            manifest.write(building)
        _publish(building, manifest, folder)
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be written: {refusal(error)}",
            hint="free some space, or choose another folder (CONFIG_DATA_DIR); make data then continues",
        ) from error
    return manifest


def _complete(building: Path, requested: Mapping[str, Any], tokenizer: Tokenizer) -> Manifest | None:
    """Return the finished manifest of a process that was killed before renaming its folder."""
    if not (building / MANIFEST).exists():
        return None
    manifest = Manifest.read(building)
    same = manifest.requested == requested and manifest.tokenizer == tokenizer.described()
    return manifest if same else None


def _publish(building: Path, manifest: Manifest, folder: Path) -> None:
    """Give the complete folder its name; a training that reads the one before keeps its open files."""
    known = {MANIFEST, *(shard.file for shard in manifest.shards)}
    for path in building.iterdir():  # progress, and what killed processes left
        if path.name not in known:
            path.unlink()
    check_intact(building, manifest, say=lambda _: None)
    if folder.exists():
        (folder / MANIFEST).unlink(missing_ok=True)  # the rest of it is nothing without
        shutil.rmtree(folder)
    os.replace(building, folder)
    sync_folder(folder.parent)


class _Preparation:
    """One under way: what is on disk for certain, and what has been written since."""

    def __init__(
        self,
        building: Path,
        source: TextSource,
        tokenizer: Tokenizer,
        requested: Mapping[str, Any],
        sizes: Sizes,
    ) -> None:
        """Continue the progress of a killed one, if that was to make the same; else from the beginning."""
        self.position: Position = ()
        self._building, self._source, self._tokenizer, self._sizes = building, source, tokenizer, sizes
        self._identity: dict[str, Any] = {
            "format": FORMAT,
            "requested": dict(requested),
            "source": dict(source.described()),
            "tokenizer": tokenizer.described(),
            "sizes": asdict(sizes),
        }
        self._splits = {name: _SplitWriter(building, name, sizes.shard) for name in SPLITS}
        progress = read_json(building / PROGRESS)
        if progress is None or progress["identity"] != json.loads(json.dumps(self._identity)):
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(parents=True)
        else:
            self.position = tuple(progress["position"])
            for name, writer in self._splits.items():
                writer.restore([Shard(**shard) for shard in progress["splits"][name]])
        self._saved = self.count

    @property
    def count(self) -> int:
        """Tokens of all splits."""
        return sum(writer.count for writer in self._splits.values())

    def run(self, *, say: Callable[[str], None]) -> Manifest:
        tokenizer = self._tokenizer
        try:
            wanted = iter(()) if self._is_enough else self._source.pieces(self.position)
            for piece, tokens in _encoded(wanted, tokenizer):
                self._splits[piece.split].add(tokens)
                if piece.ends_document and tokenizer.end_of_document is not None:
                    self._splits[piece.split].add(tokens[:0], tokenizer.end_of_document)
                self._splits[piece.split].end_piece()
                self.position = piece.after
                if self.count - self._saved >= self._sizes.save:
                    self._save()
                    say(f"{self.count:,} tokens")
                if self._is_enough:
                    break
            self._save()
        except DatasetError:  # of the source, between two pieces
            self._save()
            raise
        finally:
            for writer in self._splits.values():
                writer.close()
        identity, splits = self._identity, {n: tuple(w.shards) for n, w in self._splits.items()}
        return Manifest(identity["requested"], identity["source"], identity["tokenizer"], splits)

    @property
    def _is_enough(self) -> bool:
        return 0 < self._sizes.train <= self._splits[TRAIN].count

    def _save(self) -> None:
        """Everything so far is on disk on return, and a later process continues after it."""
        for writer in self._splits.values():
            writer.sync()
        splits = {name: [asdict(shard) for shard in w.shards] for name, w in self._splits.items()}
        progress = {"identity": self._identity, "position": self.position, "splits": splits}
        write_atomically(self._building / PROGRESS, json.dumps(progress).encode())
        self._saved = self.count


class _SplitWriter:
    """The shards of a split, of which the last one is open."""

    def __init__(self, folder: Path, split: str, shard_tokens: int) -> None:
        self.count = 0
        self._folder, self._split, self._most = folder, split, shard_tokens
        self._ended: list[Shard] = []
        self._file: Any = None
        self._tokens, self._sha256 = 0, hashlib.sha256()

    @property
    def shards(self) -> list[Shard]:
        """Those that are complete, and the open one as it is."""
        if not self._tokens:
            return self._ended
        return [*self._ended, Shard(self._name, self._tokens, self._sha256.hexdigest())]

    @property
    def _name(self) -> str:
        return f"{self._split}-{len(self._ended):05}.bin"

    def restore(self, shards: list[Shard]) -> None:
        """Continue after these; whatever was written after them is cut off."""
        self._ended = [shard for shard in shards if shard.tokens >= self._most]
        self.count = sum(shard.tokens for shard in shards)
        if self._ended == shards:
            return
        self._tokens = shards[-1].tokens
        # a hash cannot be kept half-way, so what is there goes through it once more
        self._file = (self._folder / self._name).open("r+b")
        left = self._tokens * TOKEN_BYTES
        while left and (block := self._file.read(min(left, _BLOCK))):
            self._sha256.update(block)
            left -= len(block)
        if self._sha256.hexdigest() != shards[-1].sha256:
            raise DatasetError(
                f"{self._folder / self._name} is damaged", hint=f"remove {self._folder}: rm -r {self._folder}"
            )
        self._file.truncate()

    def add(self, tokens: npt.NDArray[np.uint16], *more: int) -> None:
        # one byte order on every machine: the files are copied, and known by their hash
        data = tokens.astype("<u2").tobytes() + b"".join(token.to_bytes(2, "little") for token in more)
        if self._file is None:
            # Whatever has this name is of a process that was killed after its last save.
            self._file = (self._folder / self._name).open("wb")
        self._file.write(data)
        self._sha256.update(data)
        self._tokens += len(data) // TOKEN_BYTES
        self.count += len(data) // TOKEN_BYTES

    def end_piece(self) -> None:
        """End the shard if it is long enough: only here, so that a piece is never in two."""
        if self._tokens >= self._most:
            self.sync()
            self.close()
            self._ended = self.shards
            self._tokens, self._sha256 = 0, hashlib.sha256()

    def sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encoded(pieces: Iterator[Piece], tokenizer: Tokenizer) -> Iterator[tuple[Piece, npt.NDArray[np.uint16]]]:
    """Pieces with their tokens, in order; several are encoded at once, in threads."""
    threads = len(os.sched_getaffinity(0))
    most = min(threads * 2 * LARGEST_PIECE, _MOST_WAITING)
    waiting: deque[tuple[Piece, Future[npt.NDArray[np.uint16]]]] = deque()
    characters, failure = 0, None
    pool = ThreadPoolExecutor(threads)
    try:
        try:
            for piece in pieces:
                waiting.append((piece, pool.submit(tokenizer.encode, piece.text)))
                characters += len(piece.text)
                while characters >= most:
                    done, tokens = waiting.popleft()
                    characters -= len(done.text)
                    yield done, tokens.result()
        except DatasetError as error:  # what was read before it is kept
            failure = error
        for done, tokens in waiting:
            yield done, tokens.result()
        if failure:
            raise failure
    finally:
        pool.shutdown(cancel_futures=True)
