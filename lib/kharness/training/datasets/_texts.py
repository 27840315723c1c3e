"""Shared parts of text datasets: options, where their tokens are, preparing and loading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from kharness.config.places import asked_path
from kharness.training.datasets._files import DataFolder, Say, Sources
from kharness.training.errors import DatasetError
from kharness.training.tokens.documents import Documents, on_hub
from kharness.training.tokens.manifest import MANIFEST, SPLITS, Manifest, TextSource, check_intact
from kharness.training.tokens.preparing import Sizes, prepare
from kharness.training.tokens.streams import TokenSplits, TokenStream
from kharness.training.tokens.text_files import TextFiles, stat_sha256
from kharness.training.tokens.tokenizers import (
    BpeTokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    from_description,
)

# Of `auto`, in this order: where both are prepared, the first is trained on.
AUTOMATIC = ("gpt2", "bytes")


@dataclass(frozen=True)
class TextOptions(DataFolder):
    """Folder and tokenizer of a text dataset."""

    tokenizer: str
    """`gpt2`, `bytes`, `chars`, or `auto`: gpt2 where its vocabulary and tiktoken are there, else bytes."""
    vocabulary: str
    """File or folder of GPT-2's vocabulary."""


def text_options(options: DataFolder) -> TextOptions:
    """The same options; where they name no tokens, those of characters, which need no vocabulary."""
    if isinstance(options, TextOptions):
        return options
    return TextOptions(options.data_dir, tokenizer="chars", vocabulary=".")


OptionsT = TypeVar("OptionsT", bound=DataFolder)


class PreparedText(Generic[OptionsT]):
    """A text whose tokens `make data` prepares: what its module offers, but for `fetch` and `find`."""

    def find(self, options: OptionsT, root: Path) -> tuple[Path, Manifest]:
        """The folder of its tokens; DatasetError if they are not prepared, or not as configured."""
        raise NotImplementedError

    def check(self, options: OptionsT, root: Path) -> None:
        """DatasetError like `find`."""
        self.find(options, root)

    def manifest(self, options: OptionsT, root: Path) -> Manifest:
        """Return the manifest of the prepared tokens; raise DatasetError like `find`."""
        return self.find(options, root)[1]

    def load(self, options: OptionsT, root: Path) -> TokenSplits:
        """The tokens, memory-mapped; verified at the first use. DatasetError if missing or damaged."""
        folder, manifest = self.find(options, root)
        check_intact(folder, manifest, say=print)
        train, validation = (TokenStream.mapped(folder, manifest.splits[split]) for split in SPLITS)
        return TokenSplits(
            train,
            validation,
            partial(text_tokenizer, manifest, text_options(options), root),
            vocabulary=manifest.tokenizer["vocabulary"],
            tokenizer_sha256=manifest.tokenizer["sha256"],
            sha256=manifest.sha256,
        )


def fetch_text(name: str, place: Path, options: TextOptions, root: Path, say: Say) -> Path:
    """The folder of the tokens of a text file or folder; what is prepared and intact stays."""
    origin = {"place": str(place.absolute()), "stat_sha256": stat_sha256(place)}
    files = TextFiles.scan(place, say=say, collect_characters=options.tokenizer == "chars")
    tokenizer = _tokenizer(options, root, say, files)
    requested = {"dataset": name.partition("-")[0], **files.described()}
    folder = _prepared(name, options, root, tokenizer, requested, lambda: files, say=say, origin=origin)
    manifest = Manifest.read(folder)
    if manifest.source != {**manifest.source, **origin}:  # the same text, but elsewhere or with other times
        replace(manifest, source={**manifest.source, **origin}).write(folder)
    return folder


@dataclass(frozen=True)
class HubOptions(TextOptions):
    """Options of every text dataset, and a limit on the tokens."""

    max_tokens: int
    """Training tokens at most; 0 takes all."""


@dataclass(frozen=True)
class HubDataset(PreparedText[HubOptions]):
    """A large dataset of documents on the Hugging Face hub."""

    name: str
    repository: str
    files: str
    """Pattern of the names of its files in the repository."""

    def fetch(self, options: HubOptions, root: Path, sources: Sources) -> Path:
        """The folder of its tokens, made from files of the user's or streamed; what is intact stays."""
        if sources.mirrors:
            raise DatasetError(
                f"{self.name} is on the Hugging Face hub, not on mirrors",
                hint="HF_ENDPOINT=url names another hub",
            )
        hint = (
            f"fetch files of {self.repository} by other means, then make data DATA_DIR=the-folder-they-are-in"
        )

        def opened() -> TextSource:
            if sources.local is not None:
                return Documents.in_folder(sources.local)
            return on_hub(self.repository, self.files, local_form=hint)

        requested = {"dataset": self.name, "most_tokens": options.max_tokens}
        tokenizer, sizes = _tokenizer(options, root, sources.say), Sizes(train=options.max_tokens)
        return _prepared(self.name, options, root, tokenizer, requested, opened, say=sources.say, sizes=sizes)

    def find(self, options: HubOptions, root: Path) -> tuple[Path, Manifest]:
        folder, manifest = find_tokens(self.name, options, root)
        wanted = options.max_tokens
        if (made := manifest.requested["most_tokens"]) != wanted:
            raise DatasetError(
                f"{folder} was prepared with {made:,} training tokens at most, not {wanted:,} (0: all)",
                hint="make data prepares it again",
            )
        return folder, manifest


def text_tokenizer(manifest: Manifest, options: TextOptions, root: Path) -> Tokenizer:
    """Return the tokenizer that has made prepared tokens; DatasetError if it cannot be had here."""
    return from_description(manifest.tokenizer, vocabulary=_vocabulary(options, root))


def find_text(
    name: str, options: TextOptions, root: Path, *, place: Path | None = None
) -> tuple[Path, Manifest]:
    """Call find_tokens; raise DatasetError as well if the text at `place` has changed since it was
    prepared.
    """
    folder, manifest = find_tokens(name, options, root)
    place = place or Path(manifest.source["place"])
    if place.exists() and stat_sha256(place) != manifest.source["stat_sha256"]:
        raise DatasetError(
            f"{place} has changed since its tokens were prepared", hint="make data does that again"
        )
    return folder, manifest


def find_tokens(name: str, options: TextOptions, root: Path) -> tuple[Path, Manifest]:
    """The folder of prepared tokens; DatasetError if it is missing or a shard has not its size."""
    names = AUTOMATIC if options.tokenizer == "auto" else (options.tokenizer,)
    folders = [_folder(name, tokenizer, options, root) for tokenizer in names]
    folder = next((found for found in folders if (found / MANIFEST).exists()), folders[0])
    return folder, Manifest.read(folder)


def _prepared(
    name: str,
    options: TextOptions,
    root: Path,
    tokenizer: Tokenizer,
    requested: Mapping[str, Any],
    open_source: Callable[[], TextSource],
    *,
    say: Say,
    **details: Any,
) -> Path:
    # not above: a training needs no HTTP client, which takes long to import
    from kharness.training.datasets._fetch import alone

    folder = _folder(name, tokenizer.name, options, root)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_name(f".{folder.name}.lock")):
        if not _is_intact(folder, requested, tokenizer, say):
            made = prepare(folder, open_source(), tokenizer, requested=requested, say=say, **details)
            counts = ", ".join(f"{made.tokens(split):,} {split}" for split in SPLITS)
            say(f"{folder}: {counts} tokens ({tokenizer.name})")
    return folder


def _is_intact(folder: Path, requested: Mapping[str, Any], tokenizer: Tokenizer, say: Say) -> bool:
    if not folder.exists():
        return False
    try:
        manifest = Manifest.read(folder)
        check_intact(folder, manifest, say=lambda _: None, again=True)
    except DatasetError as error:
        say(f"{error}, preparing it again")
        return False
    if manifest.requested == requested and manifest.tokenizer == tokenizer.described():
        say(f"{folder}: intact")
        return True
    say(f"{folder}: of another text or tokenizer, preparing it again")
    return False


def _tokenizer(options: TextOptions, root: Path, say: Say, files: TextFiles | None = None) -> Tokenizer:
    if options.tokenizer == "chars" and files is not None:
        return CharTokenizer.of(files.characters, documents=len(files.files))
    if options.tokenizer in ("auto", "gpt2"):
        try:
            return BpeTokenizer.read(_vocabulary(options, root))
        except DatasetError as error:
            if options.tokenizer == "gpt2":
                raise
            say(f"tokens are bytes, for GPT-2's cannot be had: {error}")
    return ByteTokenizer()


def _vocabulary(options: TextOptions, root: Path) -> Path:
    return root / asked_path("TOKENIZER_VOCABULARY", options.vocabulary)


def _folder(name: str, tokenizer: str, options: TextOptions, root: Path) -> Path:
    return options.folder(root) / "tokens" / f"{name}-{tokenizer}"
