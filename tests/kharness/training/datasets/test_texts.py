"""Datasets of text: what `make data` prepares, what a training loads, and when it is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kharness.training.datasets import DATASETS, check_dataset, load_dataset
from kharness.training.datasets._files import Sources
from kharness.training.errors import DatasetError
from kharness.training.tokens.documents import matching
from kharness.training.tokens.streams import TokenSplits, TokenStream

TEXT = "To be, or not to be: that is the question.\n" * 20


@pytest.fixture
def config(tmp_path: Path, root: Path) -> dict[str, Any]:
    """Symbols of a training on tmp_path / text, in bytes."""
    (tmp_path / "text").write_text(TEXT)
    return {
        "DATA_DIR": str(tmp_path / "data"),
        "DATASET_TEXT_PATH": str(tmp_path / "text"),
        "TOKENIZER": "bytes",
        "TOKENIZER_VOCABULARY": str(root / "gpt2" / "vocabulary"),
    }


def fetch(name: str, config: dict[str, Any], root: Path, local: Path | None = None) -> list[str]:
    """Lines that fetching a data set prints."""
    said: list[str] = []
    options = DATASETS.options(name, config)
    DATASETS.load(name).fetch(options, root, Sources(local, say=said.append))
    check_dataset(name, config, root)
    return said


def tokens(stream: TokenStream) -> list[int]:
    found: list[int] = stream.windows(np.zeros(1, dtype=np.int64), len(stream))[0].tolist()
    return found


@pytest.mark.parametrize("tokenizer", ["bytes", "chars", "gpt2", "auto"])
def test_text_is_loaded_as_it_was_prepared(config: dict[str, Any], root: Path, tokenizer: str) -> None:
    config["TOKENIZER"] = tokenizer
    fetch("text", config, root)
    splits: TokenSplits = load_dataset("text", config, root)
    found = splits.open_tokenizer()
    assert found.decode(tokens(splits.train)) + found.decode(tokens(splits.validation)) == TEXT
    assert found.name == ("gpt2" if tokenizer == "auto" else tokenizer)
    assert (splits.vocabulary, splits.tokenizer_sha256) == (found.vocabulary, found.sha256)


def test_prepared_text_stays_and_each_tokenizer_has_its_own(config: dict[str, Any], root: Path) -> None:
    fetch("text", config, root)
    (said,) = fetch("text", config, root)
    assert said.endswith("-bytes: intact")
    chars = {**config, "TOKENIZER": "chars"}
    fetch("text", chars, root)
    hashes = [load_dataset("text", config, root).sha256, load_dataset("text", chars, root).sha256]
    assert len(set(hashes)) == 2


def test_auto_is_bytes_without_tiktoken_in_one_line(
    config: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    config["TOKENIZER"] = "auto"
    assert fetch("text", config, root)[0] == (
        "tokens are bytes, for GPT-2's cannot be had: tiktoken is not installed"
    )
    assert load_dataset("text", config, root).open_tokenizer().name == "bytes"
    with pytest.raises(DatasetError, match="tiktoken is not installed"):
        fetch("text", {**config, "TOKENIZER": "gpt2"}, root)


def test_tokens_are_trained_on_where_their_vocabulary_is_missing(
    config: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    config["TOKENIZER"] = "gpt2"
    fetch("text", config, root)
    config["TOKENIZER_VOCABULARY"] = str(tmp_path / "nowhere")
    splits = load_dataset("text", config, root)
    assert len(splits.train) > 100
    with pytest.raises(DatasetError, match="nowhere holds no vocabulary of GPT-2"):
        splits.open_tokenizer()


def test_text_that_changed_is_refused_until_it_is_prepared_again(
    config: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    fetch("text", config, root)
    before = load_dataset("text", config, root).sha256
    (tmp_path / "text").write_text(TEXT.upper())
    os.utime(tmp_path / "text", ns=(0, 1))
    for look in (check_dataset, load_dataset):
        with pytest.raises(DatasetError) as caught:
            look("text", config, root)
        assert str(caught.value) == f"{tmp_path}/text has changed since its tokens were prepared"
    assert fetch("text", config, root)[0].endswith("of another text or tokenizer, preparing it again")
    assert load_dataset("text", config, root).sha256 != before
    os.utime(tmp_path / "text", ns=(0, 2))  # the same text with another time: nothing is prepared
    assert fetch("text", config, root)[0].endswith("intact")
    (tmp_path / "text").unlink()  # the tokens are there all the same
    assert len(load_dataset("text", config, root).train) > 0


def test_damaged_shard_is_refused_and_prepared_again(
    config: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    fetch("text", config, root)
    (shard,) = (tmp_path / "data").rglob("train-00000.bin")
    good = shard.read_bytes()
    shard.write_bytes(b"\1" + good[1:])
    os.utime(shard, ns=(0, 1))
    with pytest.raises(DatasetError, match=r"train-00000\.bin is damaged"):
        load_dataset("text", config, root)
    assert "is damaged: its SHA-256 differs, preparing it again" in fetch("text", config, root)[0]
    assert shard.read_bytes() == good


@pytest.mark.parametrize("name", ["text", "shakespeare", "shakespeare_char", "finewebedu"])
def test_what_is_not_prepared_is_refused(config: dict[str, Any], root: Path, name: str) -> None:
    for look in (check_dataset, load_dataset):
        with pytest.raises(DatasetError, match=r"manifest\.json does not exist") as caught:
            look(name, config, root)
        assert caught.value.hint == (
            "make data with the same options prepares it, gpt2/prepare_data.py with the same flags"
        )


NOT_OF_TEXT = "a text of yours comes from no other folder and no mirror"


@pytest.mark.parametrize(
    ("name", "sources", "message"),
    [
        ("text", Sources(local=Path("/mnt")), NOT_OF_TEXT),
        ("text", Sources(mirrors=["http://mirror"]), NOT_OF_TEXT),
        ("tinystories", Sources(mirrors=["http://mirror"]), "tinystories is on the Hugging Face hub"),
    ],
)
def test_source_that_a_dataset_cannot_use_is_refused(
    config: dict[str, Any], root: Path, name: str, sources: Sources, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        DATASETS.load(name).fetch(DATASETS.options(name, config), root, sources)


def test_tokens_move_with_their_checkout(config: dict[str, Any], root: Path, tmp_path: Path) -> None:
    """Relative paths start at the repository; a text that is not there is not looked at."""
    config |= {"DATA_DIR": "data", "DATASET_TEXT_PATH": "text"}
    fetch("text", config, tmp_path)
    (tmp_path / "moved").mkdir()
    (tmp_path / "data").rename(tmp_path / "moved" / "data")
    assert len(load_dataset("text", config, tmp_path / "moved").train) > 0


def test_text_needs_a_path(config: dict[str, Any], root: Path) -> None:
    config["DATASET_TEXT_PATH"] = ""
    with pytest.raises(DatasetError, match="DATASET_TEXT_PATH is empty"):
        fetch("text", config, root)


def test_collection_stops_at_its_tokens(config: dict[str, Any], root: Path, tmp_path: Path) -> None:
    """At the end of the document that reaches them; another number is another preparation."""
    lines = "".join('{"text": "ten tokens"}\n' for _ in range(100))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.jsonl").write_text(lines)
    config["DATASET_OPENWEBTEXT_MAX_TOKENS"] = 95
    fetch("openwebtext", config, root, tmp_path / "mine")
    assert len(load_dataset("openwebtext", config, root).train) == 99
    config["DATASET_OPENWEBTEXT_MAX_TOKENS"] = 200
    with pytest.raises(DatasetError, match="was prepared with 95 training tokens at most, not 200") as caught:
        load_dataset("openwebtext", config, root)
    assert caught.value.hint == "make data prepares it again"
    fetch("openwebtext", config, root, tmp_path / "mine")
    assert len(load_dataset("openwebtext", config, root).train) == 209


def test_tiny_shakespeare_has_its_characters_and_blocks(
    config: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    """The numbers of https://github.com/karpathy/nanoGPT, data/shakespeare_char/readme.md."""
    full = root / "data" / "tinyshakespeare"
    if not (full / "input.txt").exists():
        pytest.skip("Tiny Shakespeare is not there (make data CONFIG_MODEL_GPT2=y)")
    fetch("shakespeare_char", config, root, full)
    splits: TokenSplits = load_dataset("shakespeare_char", config, root)
    assert (len(splits.train), len(splits.validation), splits.vocabulary) == (1_003_854, 111_540, 65)
    assert splits.open_tokenizer().decode(tokens(splits.validation)[:9]) == "?\n\nGREMIO"
    assert (tmp_path / "data/tinyshakespeare/input.txt").read_bytes() == (full / "input.txt").read_bytes()


def test_topics_of_python_are_there_without_a_download(root: Path) -> None:
    splits: TokenSplits = load_dataset("pydoc-topics", {}, root)
    total = len(splits.train) + len(splits.validation)
    assert len(splits.train) == total * 9 // 10 > 100_000
    assert "statement" in splits.open_tokenizer().decode(tokens(splits.train))


# Files of these repositories on the hub, as public programs that download single ones name them: to take,
# then others.
HUB = {
    "finewebedu": (
        [f"sample/10BT/{number:03}_00000.parquet" for number in range(14)],
        ["README.md", "data/CC-MAIN-2013-20/train-00000-of-00014.parquet", "sample/100BT/000_00000.parquet"],
    ),
    "openwebtext": (
        [f"plain_text/train-{number:05}-of-00080.parquet" for number in range(80)],
        [".gitattributes", "README.md"],
    ),
    "tinystories": (
        [
            "data/train-00000-of-00004-2d5a1467fff1081b.parquet",
            "data/train-00001-of-00004-5852b56a2bd28fd9.parquet",
            "data/train-00002-of-00004-a26307300439e943.parquet",
            "data/train-00003-of-00004-d243063613e5a057.parquet",
            "data/validation-00000-of-00001-869c898b519ad725.parquet",
        ],
        ["README.md", "TinyStories-train.txt", "TinyStoriesV2-GPT4-valid.txt", "TinyStories_all_data.tar.gz"],
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_the_files_of_a_dataset_on_the_hub_are_found(name: str) -> None:
    wanted, others = HUB[name]
    assert matching([*others, *reversed(wanted)], vars(DATASETS.load(name))["DATASET"].files) == tuple(wanted)
