"""The help topics of the Python interpreter that runs, as bytes: a text that is there without a download."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kharness.training.datasets._files import Sources
from kharness.training.tokens.streams import TokenSplits, TokenStream
from kharness.training.tokens.text_files import TRAIN_TENTHS
from kharness.training.tokens.tokenizers import ByteTokenizer


@dataclass(frozen=True)
class Options:
    """Nothing to choose."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """Where the interpreter has them: nothing is downloaded."""
    import pydoc_data.topics

    return Path(pydoc_data.topics.__file__)


def check(options: Options, root: Path) -> None:
    """Nothing can be missing: the topics are a part of Python."""


def load(options: Options, root: Path) -> TokenSplits:
    """All topics in the order of their names, as UTF-8; the end of them is for validation."""
    from pydoc_data.topics import topics

    content = "\n".join(f"{name}\n\n{topics[name]}" for name in sorted(topics)).encode()
    tokens = np.frombuffer(content, dtype=np.uint8).astype(np.uint16)
    first = len(tokens) * TRAIN_TENTHS // 10
    return TokenSplits(
        TokenStream([tokens[:first]]),
        TokenStream([tokens[first:]]),
        ByteTokenizer,
        vocabulary=ByteTokenizer.vocabulary,
        tokenizer_sha256=ByteTokenizer().sha256,
        sha256=hashlib.sha256(content).hexdigest(),
    )
