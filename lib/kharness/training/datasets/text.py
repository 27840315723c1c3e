"""Text of yours: a file, or all text files of a folder; docs/data.md says which and what is held out."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import TextOptions, fetch_text, find_text, load_tokens
from kharness.training.errors import DatasetError
from kharness.training.tokens.streams import TokenSplits

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True


@dataclass(frozen=True)
class Options(TextOptions):
    """As of all text, and which."""

    path: str = ""
    """The file or folder; a relative path starts at the repository."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder of the tokens; nothing is downloaded."""
    place = _place(options, root)
    return fetch_text(_name(place), place, options, root, sources.say)


def check(options: Options, root: Path) -> None:
    """DatasetError if the tokens are not prepared, or the text has changed since."""
    place = _place(options, root)
    find_text(_name(place), options, root, place=place)


def load(options: Options, root: Path) -> TokenSplits:
    """The tokens; DatasetError if they are missing or damaged, or the text has changed since."""
    place = _place(options, root)
    return load_tokens(*find_text(_name(place), options, root, place=place), options, root)


def _place(options: Options, root: Path) -> Path:
    if not options.path:
        raise DatasetError("DATASET_TEXT_PATH is empty", hint="it names the text file or folder to train on")
    return root / asked_path("DATASET_TEXT_PATH", options.path)


def _name(place: Path) -> str:
    """Each place has tokens of its own."""
    return f"text-{hashlib.sha256(os.fsencode(place.absolute())).hexdigest()[:12]}"
