"""Preparing tokens: killed at any moment, on a full disk, in little memory; what is refused afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import MANIFEST, Manifest, check_intact
from kharness.training.tokens.streams import TokenStream
from kharness.training.tokens.tokenizers import check_vocabulary

from ....warm_python import WarmPython

Prepare = Callable[[str, Path, Path], list[Any]]


@pytest.fixture
def prepare(warm_python: WarmPython) -> Prepare:
    """preparations.py; what it and its forks printed."""

    def run(mode: str, text: Path, folder: Path) -> list[Any]:
        script = Path(__file__).with_name("preparations.py")
        done = warm_python.run([script, mode, text, folder])
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """6,000 bytes in two files: words of one to four bytes a character."""
    letters = random.Random(1)
    words = ["".join(letters.choices("abcdéß漢字😀", k=letters.randint(1, 9))) for _ in range(300)]
    (tmp_path / "text").mkdir()
    for name, size in (("a.txt", 2000), ("b.txt", 4000)):
        content = " ".join(letters.choices(words, k=size)).encode()[:size]
        (tmp_path / "text" / name).write_bytes(content.decode(errors="ignore").encode())
    return tmp_path / "text"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".verified.json"}


@pytest.mark.parametrize("mode", ["operation", "save"])
def test_a_preparation_killed_again_and_again_makes_the_same_bytes(
    prepare: Prepare, text: Path, tmp_path: Path, mode: str
) -> None:
    prepare("whole", text, tmp_path / "once")
    (said,) = prepare(mode, text, tmp_path / "killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "once")
    assert said["number"] >= 3
    assert {path.name for path in tmp_path.iterdir()} == {"text", "once", "killed"}


def test_tokens_are_those_of_the_text(prepare: Prepare, text: Path, tmp_path: Path) -> None:
    """Every byte once and in order, the last tenth for validation, NUL between documents."""
    prepare("whole", text, tmp_path / "tokens")
    first, second = ((text / name).read_bytes() for name in ("a.txt", "b.txt"))
    manifest = Manifest.read(tmp_path / "tokens")
    train, validation = (
        TokenStream.mapped(tmp_path / "tokens", manifest.splits[split]) for split in ("train", "validation")
    )
    everything = [
        stream.windows(np.zeros(1, dtype=np.int64), len(stream))[0].astype(np.uint8).tobytes()
        for stream in (train, validation)
    ]
    assert b"".join(everything) == first + b"\0" + second + b"\0"
    held_out = len(first + second) - len(first + second) * 9 // 10
    assert held_out <= len(everything[1]) - 1 <= held_out + 3  # a character is not cut
    assert len(manifest.splits["train"]) == 3


def test_full_disk_is_one_error_and_the_next_call_continues(
    prepare: Prepare, text: Path, tmp_path: Path
) -> None:
    prepare("whole", text, tmp_path / "once")
    error, said = prepare("full", text, tmp_path / "tokens")
    assert error["error"] == f"{tmp_path}/tokens cannot be written: file too large"
    assert error["hint"].startswith("free some space, or choose another folder")
    assert said == {"number": 0}
    assert contents(tmp_path / "tokens") == contents(tmp_path / "once")


def test_memory_does_not_grow_with_the_text(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"four words and more\n" * 2_000_000)
    (said,) = prepare("memory", tmp_path / "text", tmp_path / "tokens")
    assert said["number"] < 32_000_000  # the text has 40,000,000 bytes, its tokens twice as many


def test_preparation_of_another_text_is_not_continued(prepare: Prepare, text: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("a text of its own")
    prepare("whole", tmp_path / "other", tmp_path / "once")
    begun = tmp_path / ".tokens.part"
    begun.mkdir()
    progress = {"identity": {"requested": "another"}, "position": [0, 3], "splits": {}}
    (begun / "progress.json").write_text(json.dumps(progress))
    (begun / "train-00007.bin").write_bytes(b"of another text")
    prepare("whole", tmp_path / "other", tmp_path / "tokens")
    assert contents(tmp_path / "tokens") == contents(tmp_path / "once")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), f"{MANIFEST} does not exist"),
        (lambda folder: (folder / MANIFEST).write_text("{"), f"{MANIFEST} is damaged"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), f"{MANIFEST} is damaged"),
        (lambda folder: _changed(folder / MANIFEST, b'"tokens": 2', b'"tokens": 3'), "is damaged"),
        (lambda folder: _changed(folder / MANIFEST, b'"format": 1', b'"format": 9'), "another version"),
        (lambda folder: (folder / "train-00002.bin").unlink(), "train-00002.bin: no such file or directory"),
        (lambda folder: (folder / "train-00002.bin").write_bytes(b"ab"), "is damaged: 2 bytes instead of "),
    ],
)
def test_folder_that_is_not_intact_is_refused(
    prepare: Prepare, text: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    prepare("whole", text, tmp_path / "tokens")
    damage(tmp_path / "tokens")
    with pytest.raises(DatasetError, match=message) as caught:
        Manifest.read(tmp_path / "tokens")
    assert caught.value.hint == (
        "make data with the same options prepares it, gpt2/prepare_data.py with the same flags"
        if message.endswith("does not exist")
        else "make data prepares it again"
    )


def _changed(path: Path, old: bytes, new: bytes) -> None:
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_shards_are_read_in_full_at_the_first_use_and_after_a_change(
    prepare: Prepare, text: Path, tmp_path: Path
) -> None:
    prepare("whole", text, tmp_path / "tokens")
    folder, said = tmp_path / "tokens", list[str]()
    manifest = Manifest.read(folder)
    check_intact(folder, manifest, say=said.append)
    assert said == []  # whoever made it has verified it
    (folder / ".verified.json").unlink()  # as in a copy of the folder
    check_intact(folder, manifest, say=said.append)
    check_intact(folder, manifest, say=said.append)
    assert said == [f"{folder}: verifying 0.0 MB"]
    content = bytearray((folder / "train-00001.bin").read_bytes())
    content[100] ^= 1
    (folder / "train-00001.bin").write_bytes(content)
    with pytest.raises(DatasetError, match=r"train-00001\.bin is damaged: its SHA-256 differs"):
        check_intact(folder, manifest, say=said.append)


def test_vocabulary_that_uint16_cannot_number_is_refused() -> None:
    check_vocabulary("chars", 65_536, hint="")
    with pytest.raises(DatasetError) as caught:
        check_vocabulary("chars", 65_537, hint="take bytes")
    assert str(caught.value) == (
        "chars: 65,537 tokens, where shards (uint16) hold at most 65,536 different ones"
    )
