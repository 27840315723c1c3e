"""Collections of documents: in files of the user's, and streamed from a hub on the loopback interface."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kharness.training.errors import DatasetError
from kharness.training.tokens.documents import Documents, split_of
from kharness.training.tokens.manifest import Manifest
from kharness.training.tokens.preparing import prepare as prepare_tokens
from kharness.training.tokens.tokenizers import ByteTokenizer

from ....warm_python import WarmPython
from .hub import COMMIT, Hub, serving

TEXTS = [f"document {number}: once upon a time " * (number % 7) for number in range(600)]
REPOSITORY = "roneneldan/TinyStories"


def parquet(texts: Sequence[str | None], *, column: str = "text", group: int = 70) -> bytes:
    import pyarrow
    import pyarrow.parquet

    content = io.BytesIO()
    table = pyarrow.table({"url": ["of no use"] * len(texts), column: texts})
    pyarrow.parquet.write_table(table, content, row_group_size=group)
    return content.getvalue()


def json_lines(texts: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a.parquet", parquet),
        ("a.jsonl", json_lines),
        ("a.jsonl.gz", lambda texts: gzip.compress(json_lines(texts))),
    ],
    ids=["parquet", "jsonl", "jsonl.gz"],
)
def test_documents_are_read_from_any_position(
    tmp_path: Path, name: str, encoded: Callable[[list[str]], bytes]
) -> None:
    (tmp_path / name).write_bytes(encoded(TEXTS))
    documents = replace(Documents.in_folder(tmp_path), largest_piece=50)
    pieces = list(documents.pieces())
    assert "".join(piece.text for piece in pieces) == "".join(TEXTS)
    assert sum(piece.ends_document for piece in pieces) == len(TEXTS)
    for number in (0, 1, 100, 700, len(pieces) - 2, len(pieces) - 1):
        assert list(documents.pieces(pieces[number].after)) == pieces[number + 1 :]


def test_a_document_is_on_the_side_that_its_text_says(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(2000)]
    (tmp_path / "b.jsonl").write_bytes(json_lines(texts))
    (tmp_path / "a.jsonl").write_bytes(json_lines(texts[:50]))
    found = {(piece.text, piece.split) for piece in Documents.in_folder(tmp_path).pieces()}
    assert found == {(text, split_of(text)) for text in texts}
    assert 2 <= sum(split == "validation" for _, split in found) <= 25  # 10 are expected
    assert [text for text in texts if split_of(text) == "validation"][:2] == ["text 856", "text 1214"]


def test_files_of_the_collection_for_validation_are_held_out(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train-0", "validation-0"):
        (tmp_path / "data" / f"{name}.parquet").write_bytes(parquet(TEXTS[:300]))
    pieces = list(Documents.in_folder(tmp_path).pieces())
    assert [piece.split for piece in pieces] == ["train"] * 300 + ["validation"] * 300


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"text", "holds no documents"),
        ("a.parquet", b"PAR1 but no more", "a.parquet is damaged"),
        ("a.parquet", parquet(["x"], column="content"), "a.parquet has no column 'text'"),
        ("a.jsonl", b'{"text": "one"}\n{"text": 2}\n', "a.jsonl:2: not a JSON object with a text"),
        ("a.jsonl", b"[]\n", "a.jsonl:1: not a JSON object with a text"),
        ("a.jsonl", b"\xff\n", "a.jsonl:1: not a JSON object with a text"),
        ("a.jsonl.gz", gzip.compress(json_lines(TEXTS))[:-50], "a.jsonl.gz cannot be read"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz cannot be read"),
    ],
)
def test_files_that_are_no_documents_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        list(Documents.in_folder(tmp_path).pieces())


def test_half_a_character_and_a_missing_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a\\ud83d b"}\n')
    (tmp_path / "b.parquet").write_bytes(parquet([None, "b"]))
    found = [piece.text for piece in Documents.in_folder(tmp_path).pieces()]
    assert found == ["a\N{REPLACEMENT CHARACTER} b", "", "b"]


def test_missing_pyarrow_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(["x"]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DatasetError, match="pyarrow is not installed") as caught:
        list(Documents.in_folder(tmp_path).pieces())
    assert caught.value.hint == "pip install huggingface_hub pyarrow"


Prepare = Callable[..., CompletedProcess[str]]


@pytest.fixture
def prepare(root: Path, tmp_path: Path, warm_python: WarmPython) -> Prepare:
    """`python gpt2/prepare_data.py`, with the tokens in tmp_path / name and a hub at an address."""

    def run(name: str, *flags: object, hub: str) -> CompletedProcess[str]:
        patient = {"HF_HUB_DOWNLOAD_TIMEOUT": "600", "HF_HUB_ETAG_TIMEOUT": "600"}
        its = {"HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), **patient}
        fixed = ("--dataset", "tinystories", "--tokenizer", "bytes", "--data-dir", tmp_path / name)
        return warm_python.run([root / "gpt2" / "prepare_data.py", *fixed, *flags], env={**os.environ, **its})

    return run


def tokens(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tokens/tinystories-bytes").glob("*.bin")}


def test_the_hub_is_streamed_and_continued_after_it_failed(prepare: Prepare, tmp_path: Path) -> None:
    files = {f"data/train-{n}.parquet": parquet(TEXTS[n * 200 : n * 200 + 200]) for n in range(3)}
    files["data/validation-0.parquet"] = parquet(["held out"] * 20)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with serving(Hub(REPOSITORY, {**files, "extra.bin": b""}, fail_after=2)) as hub:
        broken = prepare("streamed", hub=hub.url)
        assert (broken.returncode, tokens(tmp_path / "streamed")) == (2, {})
        error, hint = broken.stderr.splitlines()
        assert error.startswith("error: data/train-2.parquet cannot be read: ")
        assert hint == "hint: make data continues where it was broken off"
        hub.fail_after, hub.asked = None, []
        again = prepare("streamed", hub=hub.url)
        assert (again.returncode, again.stderr) == (0, "")
        assert "continuing after " in again.stdout
        assert [path for path in hub.asked if "train-0" in path] == []
    folder = tmp_path / "local/tokens/tinystories-bytes"
    source = Documents.in_folder(tmp_path / "data")
    prepare_tokens(folder, source, ByteTokenizer(), requested={}, say=lambda _: None, origin={"by": "hand"})
    assert Manifest.read(folder).source == {**source.described(), "by": "hand"}
    assert tokens(tmp_path / "streamed") == tokens(tmp_path / "local")
    (manifest,) = (json.loads(p.read_text()) for p in (tmp_path / "streamed").rglob("manifest.json"))
    assert manifest["source"] == {"hub": REPOSITORY, "commit": COMMIT, "files": 4}


def test_hub_that_cannot_be_reached_is_one_error(prepare: Prepare, tmp_path: Path) -> None:
    done = prepare("data", hub="http://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {REPOSITORY}: the hub cannot be reached: [Errno 111] Connection refused\n"
        f"hint: fetch files of {REPOSITORY} by other means, "
        "then make data DATA_DIR=the-folder-they-are-in\n"
    )
    assert list((tmp_path / "data" / "tokens").glob("tiny*")) == []
