"""Text as blocks of tokens: what to train on and what to validate on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kharness.config.options import Options
from kharness.training.datasets import load_dataset
from kharness.training.errors import DatasetError

# The last part of the text, of which nothing is trained on.
VALIDATION_FRACTION = 0.1


@dataclass(frozen=True)
class Blocks:
    """Non-overlapping blocks of a stream of tokens (uint16)."""

    tokens: Tensor
    """All of them, int32: torch computes nothing in uint16."""
    block_size: int
    device: torch.device

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.block_size

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and the tokens after them, both int64 (n, block size), on the device."""
        within = torch.arange(self.block_size + 1)
        found = self.tokens[indices.cpu().unsqueeze(1) * self.block_size + within].long().to(self.device)
        return found[:, :-1], found[:, 1:]


@dataclass(frozen=True)
class TextSplits:
    """The validation text is the end of the whole."""

    train: Blocks
    validation: Blocks
    sha256: str
    vocabulary: int
    """Every token is below it."""

    @property
    def tokens_per_sample(self) -> int:
        """What a training counts its tokens by."""
        return self.train.block_size

    @property
    def sizes(self) -> dict[str, int]:
        """Blocks in each split."""
        return {"train": len(self.train), "validation": len(self.validation)}


def load_splits(options: Options, *, root: Path, device: torch.device) -> TextSplits:
    """The splits of the chosen DATASET; DatasetError where one is shorter than a block."""
    text = load_dataset(options.DATASET, options.values, root)
    tokens = torch.from_numpy(np.frombuffer(text.content, dtype=np.uint8).astype(np.int32))
    first = round(len(tokens) * (1 - VALIDATION_FRACTION))
    train, validation = (
        Blocks(part, options.GPT2_BLOCK_SIZE, device) for part in (tokens[:first], tokens[first:])
    )
    if not len(validation):
        raise DatasetError(
            f"GPT2_BLOCK_SIZE={options.GPT2_BLOCK_SIZE} is longer than the validation text of "
            f"{len(validation.tokens)} tokens",
            hint="choose shorter blocks",
        )
    return TextSplits(train, validation, text.sha256, vocabulary=256)
