"""Tiny Shakespeare, 1,115,394 characters of plays, in tokens of GPT-2's vocabulary.

The file of https://github.com/karpathy/char-rnn; William Shakespeare, in the public domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import DataFolder, Dataset, DatasetFile, Sources
from kharness.training.datasets._texts import PreparedText, TextOptions, fetch_text, find_text, text_options
from kharness.training.tokens.manifest import Manifest

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
class Shakespeare(PreparedText[DataFolder]):
    """The plays, in one kind of tokens."""

    name: str

    def fetch(self, options: DataFolder, root: Path, sources: Sources) -> Path:
        """The folder of the tokens; the text, where it is missing or damaged, is fetched from `sources`."""
        # not above: trainings and the checks before a matrix need no HTTP client, which takes long to import
        from kharness.training.datasets._fetch import fetch_files

        folder = fetch_files(TINY_SHAKESPEARE, options.folder(root) / TINY_SHAKESPEARE.name, sources)
        return fetch_text(self.name, folder / "input.txt", text_options(options), root, sources.say)

    def find(self, options: DataFolder, root: Path) -> tuple[Path, Manifest]:
        return find_text(self.name, text_options(options), root)


TEXT = Shakespeare("shakespeare")

Options = TextOptions
fetch, check, load, manifest = TEXT.fetch, TEXT.check, TEXT.load, TEXT.manifest
