"""FineWeb-Edu, the sample of 10 billion tokens: educational pages of the web.

https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu (ODC-By 1.0); Penedo et al., arXiv:2406.17557.
The sample's files are sample/10BT/000_00000.parquet to 013_00000.parquet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import HubDataset, TextOptions
from kharness.training.tokens.streams import TokenSplits

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("finewebedu", "HuggingFaceFW/fineweb-edu", "sample/10BT/*.parquet")


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
