"""Tiny Shakespeare in its 65 characters, each of which is a token: the last 111,540 are for validation."""

from __future__ import annotations

from pathlib import Path

from kharness.training.datasets import shakespeare
from kharness.training.datasets._files import DataFolder, Sources
from kharness.training.datasets._texts import TextOptions
from kharness.training.tokens.manifest import Manifest
from kharness.training.tokens.streams import TokenSplits

NAME = "shakespeare_char"

Options = DataFolder


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder of the tokens; the text, where it is missing or damaged, is fetched from `sources`."""
    return shakespeare.fetch(_text(options), root, sources, name=NAME)


def check(options: Options, root: Path) -> None:
    """DatasetError if the tokens are not prepared."""
    shakespeare.check(_text(options), root, name=NAME)


def manifest(options: Options, root: Path) -> Manifest:
    """Return the manifest of the prepared tokens; raise DatasetError like `check`."""
    return shakespeare.manifest(_text(options), root, name=NAME)


def load(options: Options, root: Path) -> TokenSplits:
    """The tokens; DatasetError if they are missing or damaged."""
    return shakespeare.load(_text(options), root, name=NAME)


def _text(options: Options) -> TextOptions:
    return TextOptions(options.data_dir, tokenizer="chars", vocabulary=".")  # characters need none
