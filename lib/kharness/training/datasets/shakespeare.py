"""Tiny Shakespeare, 1,115,394 characters of plays, in tokens of GPT-2's vocabulary.

The file of https://github.com/karpathy/char-rnn; William Shakespeare, in the public domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import Dataset, DatasetFile, Sources
from kharness.training.datasets._texts import TextOptions, fetch_text, find_text, load_tokens
from kharness.training.tokens.manifest import Manifest
from kharness.training.tokens.streams import TokenSplits

_COMMIT = "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
TINY_SHAKESPEARE = Dataset(
    name="tinyshakespeare",
    files=(
        DatasetFile(
            "input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            1_115_394,
            suffix="",
        ),
    ),
    mirrors=(
        f"https://raw.githubusercontent.com/karpathy/char-rnn/{_COMMIT}/data/tinyshakespeare/",
        f"https://cdn.jsdelivr.net/gh/karpathy/char-rnn@{_COMMIT}/data/tinyshakespeare/",
    ),
)


@dataclass(frozen=True)
class Options(TextOptions):
    """The options of every text dataset."""


def fetch(options: TextOptions, root: Path, sources: Sources, *, name: str = "shakespeare") -> Path:
    """The folder of the tokens; the text, where it is missing or damaged, is fetched from `sources`."""
    # not above: trainings and the checks before a matrix need no HTTP client, which takes long to import
    from kharness.training.datasets._fetch import fetch_files

    folder = fetch_files(TINY_SHAKESPEARE, options.folder(root) / TINY_SHAKESPEARE.name, sources)
    return fetch_text(name, folder / "input.txt", options, root, sources.say)


def check(options: TextOptions, root: Path, *, name: str = "shakespeare") -> None:
    """DatasetError if the tokens are not prepared."""
    find_text(name, options, root)


def manifest(options: TextOptions, root: Path, *, name: str = "shakespeare") -> Manifest:
    """Return the manifest of the prepared tokens; raise DatasetError like `check`."""
    return find_text(name, options, root)[1]


def load(options: TextOptions, root: Path, *, name: str = "shakespeare") -> TokenSplits:
    """The tokens; DatasetError if they are missing or damaged."""
    return load_tokens(*find_text(name, options, root), options, root)
