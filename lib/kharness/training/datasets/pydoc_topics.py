"""The help topics of the Python interpreter that runs: a text that is there without a download."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import Sources


@dataclass(frozen=True)
class Options:
    """Nothing to choose."""


@dataclass(frozen=True)
class Text:
    """A text as bytes."""

    content: bytes
    sha256: str


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """Where the interpreter has them: nothing is downloaded."""
    import pydoc_data.topics

    return Path(pydoc_data.topics.__file__)


def check(options: Options, root: Path) -> None:
    """Nothing can be missing: the topics are a part of Python."""


def load(options: Options, root: Path) -> Text:
    """All topics in the order of their names, as UTF-8."""
    from pydoc_data.topics import topics

    content = "\n".join(f"{name}\n\n{topics[name]}" for name in sorted(topics)).encode()
    return Text(content, hashlib.sha256(content).hexdigest())
