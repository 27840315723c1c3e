"""OpenWebText, 8 million pages that Reddit linked to: the open form of what GPT-2 was trained on.

https://huggingface.co/datasets/Skylion007/openwebtext (CC0 1.0); A. Gokaslan, V. Cohen. Its files are
plain_text/train-00000-of-00080.parquet to -00079- (commit b4325f0); once they were archives, subsets/*.tar.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import HubDataset, TextOptions
from kharness.training.tokens.streams import TokenSplits

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True
DATASET = HubDataset("openwebtext", "Skylion007/openwebtext", "plain_text/*.parquet")


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
