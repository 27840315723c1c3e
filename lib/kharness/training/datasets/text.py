"""Your own text: a file, or all text files of a folder; docs/data.md says which and what is held out."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import PreparedText, TextOptions, fetch_text, find_text
from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import Manifest

# `make data` takes it only where it is the DATASET.
ON_REQUEST = True


@dataclass(frozen=True)
class Options(TextOptions):
    """Options of every text dataset, and the path of the text."""

    path: str
    """The file or folder; a relative path starts at the repository."""


class OwnText(PreparedText[Options]):
    """The text that DATASET_TEXT_PATH names."""

    def fetch(self, options: Options, root: Path, sources: Sources) -> Path:
        """The folder of the tokens; nothing is downloaded."""
        if sources.local or sources.mirrors:
            raise DatasetError(
                "a text of yours comes from no other folder and no mirror", hint="DATASET_TEXT_PATH names it"
            )
        return fetch_text(_name(options), _place(options, root), options, root, sources.say)

    def find(self, options: Options, root: Path) -> tuple[Path, Manifest]:
        """DatasetError also if the text has changed since its tokens were prepared."""
        return find_text(_name(options), options, root, place=_place(options, root))


TEXT = OwnText()

fetch, check, load, manifest = TEXT.fetch, TEXT.check, TEXT.load, TEXT.manifest


def _place(options: Options, root: Path) -> Path:
    if not options.path:
        raise DatasetError("DATASET_TEXT_PATH is empty", hint="it names the text file or folder to train on")
    return root / asked_path("DATASET_TEXT_PATH", options.path)


def _name(options: Options) -> str:
    """Each path as it is configured has tokens of its own, so that a moved checkout has them as well."""
    return f"text-{hashlib.sha256(os.fsencode(options.path)).hexdigest()[:12]}"
