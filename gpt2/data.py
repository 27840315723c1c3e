"""Text as blocks of tokens, in a training and a validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gpt2.needs import blocks_of
from kharness.config.options import Options
from kharness.training.checkpoint import Stateful
from kharness.training.data import Batches, entropy
from kharness.training.datasets import load_dataset
from kharness.training.tokens.streams import TokenSplits, TokenStream
from kharness.training.tokens.tokenizers import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt


# Tokens by which their frequencies are known.
FREQUENT = 1 << 20


@dataclass(frozen=True)
class Blocks:
    """Non-overlapping blocks of a stream of tokens; processes that share their numbers share the text."""

    tokens: TokenStream
    block_size: int
    device: torch.device

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.block_size

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and the tokens after them, both int64 (n, block size), on the device."""
        windows = torch.from_numpy(self.tokens.windows(self._starts(indices), self.block_size + 1))
        if self.device.type == "cuda":  # copied asynchronously, at 2 bytes per token
            windows = windows.pin_memory()
        found = windows.to(self.device, non_blocking=True).long()
        return found[:, :-1], found[:, 1:]

    def read_ahead(self, indices: Tensor) -> None:
        """Have the blocks of a later batch read from disk in the background."""
        self.tokens.read_ahead(self._starts(indices), self.block_size + 1)

    def _starts(self, indices: Tensor) -> npt.NDArray[np.int64]:
        return indices.numpy() * self.block_size


@dataclass(frozen=True)
class TextSplits:
    """No token of the validation text is trained on."""

    train: Blocks
    validation: Blocks
    sha256: str
    tokenizer_sha256: str
    open_tokenizer: Callable[[], Tokenizer]
    """Opens the tokenizer that decodes tokens into text; DatasetError if its vocabulary is missing."""
    vocabulary: int
    """Every token is below it."""

    @property
    def tokens_per_sample(self) -> int:
        """Tokens per sample, by which a training counts its tokens."""
        return self.train.block_size

    def begin(self, batches: Batches) -> Mapping[str, Stateful]:
        """Have each batch read from disk during the step before it."""
        batches.device = torch.device("cpu")  # blocks are read on the CPU, without waiting for a GPU
        batches.upcoming = self.train.read_ahead
        return {}

    @property
    def chance_loss(self) -> float:
        """Cross-entropy, in nats, of a unigram model: every token guessed by its frequency."""
        count = min(len(self.train.tokens), FREQUENT)
        first = self.train.tokens.windows(np.zeros(1, dtype=np.int64), count)[0]
        return entropy(torch.from_numpy(first.astype(np.int64)))

    @property
    def sizes(self) -> dict[str, int]:
        """Blocks in each split."""
        return {"train": len(self.train), "validation": len(self.validation)}


def load_splits(options: Options, *, root: Path, device: torch.device) -> TextSplits:
    """The splits of the chosen DATASET; DatasetError where one is shorter than a block."""
    text: TokenSplits = load_dataset(options.DATASET, options.values, root)
    train, validation = (
        Blocks(tokens, options.GPT2_BLOCK_SIZE, device) for tokens in (text.train, text.validation)
    )
    for name, blocks in (("training", train), ("validation", validation)):
        blocks_of(name, len(blocks.tokens), options.GPT2_BLOCK_SIZE)
    return TextSplits(
        train, validation, text.sha256, text.tokenizer_sha256, text.open_tokenizer, text.vocabulary
    )
