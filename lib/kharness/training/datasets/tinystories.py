"""TinyStories, 2 million short stories in the words of a small child.

https://huggingface.co/datasets/roneneldan/TinyStories (CDLA-Sharing 1.0); Eldan and Li, arXiv:2305.07759.
Its files are data/train-00000-of-00004-HASH.parquet to -00003-, data/validation-00000-of-00001-HASH.parquet;
the same stories and others by GPT-4 alone stand beside them as text and as an archive, which are not taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import HubDataset, TextOptions
from kharness.training.tokens.streams import TokenSplits

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("tinystories", "roneneldan/TinyStories", "data/*.parquet")


@dataclass(frozen=True)
class Options(TextOptions):
    """As of all text, and how much of it."""

    max_tokens: int = 0
    """Training tokens at most; 0 takes all."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder of the tokens, streamed from the hub or made from files of the user's."""
    return DATASET.fetch(options, root, sources, most_tokens=options.max_tokens)


def check(options: Options, root: Path) -> None:
    """DatasetError if the tokens are not prepared."""
    DATASET.check(options, root, most_tokens=options.max_tokens)


def load(options: Options, root: Path) -> TokenSplits:
    """The tokens; DatasetError if they are missing or damaged."""
    return DATASET.load(options, root, most_tokens=options.max_tokens)
