"""Tokenizers: GPT-2's against tiktoken's own reader and published counts, and what each refuses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import cut
from kharness.training.tokens.tokenizers import (
    BpeTokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    from_description,
    read_ranks,
)

TEXT = "Ein Satz, 3 Zeilen:\r\n\r\n  def x():\n\treturn 'naïve' + \"漢字 😀\"\n<|endoftext|> \n"
# Of tiktoken_ext.openai_public: what tiktoken holds downloads to.
VOCAB_BPE_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


@pytest.fixture(scope="module")
def vocabulary(root: Path) -> Path:
    return root / "gpt2" / "vocabulary"


@pytest.fixture(scope="module")
def gpt2(vocabulary: Path) -> BpeTokenizer:
    return BpeTokenizer.read(vocabulary)


def test_shipped_vocabulary_is_the_published_file(vocabulary: Path) -> None:
    content = gzip.decompress((vocabulary / "vocab.bpe.gz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == VOCAB_BPE_SHA256


def test_gpt2_writes_the_tokens_of_openais_encoder(gpt2: BpeTokenizer) -> None:
    """The example of tiktoken's documentation; and what its decoder, which knows no text, gives back."""
    assert gpt2.encode("hello world").tolist() == [31373, 995]
    assert gpt2.decode(gpt2.encode(TEXT).tolist()) == TEXT
    assert (gpt2.vocabulary, gpt2.end_of_document, gpt2.decode([50256])) == (50257, 50256, "<|endoftext|>")
    assert 50256 not in gpt2.encode(TEXT)  # text that looks like the end of a document is text


@pytest.fixture(scope="module")
def shakespeare(root: Path) -> str:
    path = root / "data" / "tinyshakespeare" / "input.txt"
    if not path.exists():
        pytest.skip("Tiny Shakespeare is not there (make data CONFIG_MODEL_GPT2=y)")
    return path.read_text()


def test_tiny_shakespeare_has_the_published_number_of_tokens(gpt2: BpeTokenizer, shakespeare: str) -> None:
    """The numbers are from https://github.com/karpathy/nanoGPT, data/shakespeare/readme.md."""
    first = len(shakespeare) * 9 // 10
    train, validation = (
        sum(len(gpt2.encode(piece)) for piece in cut(text, largest=50_000))
        for text in (shakespeare[:first], shakespeare[first:])
    )
    assert (train, validation) == (301_966, 36_059)


@given(st.text(st.sampled_from("ab'1!é漢 \n\r\t\u00a0\u2003\x1f"), max_size=60), st.integers(1, 20))
def test_pieces_have_the_tokens_of_the_entire_text(gpt2: BpeTokenizer, text: str, largest: int) -> None:
    """Wherever a piece has a place to be cut at; one that has none is cut all the same."""
    pieces = list(cut(text, largest=largest))
    assert "".join(pieces) == text
    assert all(len(piece) <= largest for piece in pieces)
    if all(after[:1] in tuple(" \n\r\t") and not before[-1].isspace() for before, after in pairs(pieces)):
        found = [token for piece in pieces for token in gpt2.encode(piece).tolist()]
        assert found == gpt2.encode(text).tolist()


def pairs(pieces: list[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(pieces))


@pytest.mark.parametrize("name", ["vocab.bpe", "merges.txt", "merges.txt.gz", "r50k_base.tiktoken"])
def test_vocabulary_of_the_users_is_read_in_every_form(
    gpt2: BpeTokenizer, vocabulary: Path, tmp_path: Path, name: str
) -> None:
    merges = gzip.decompress((vocabulary / "vocab.bpe.gz").read_bytes())
    ranks = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in gpt2.ranks.items())
    content = ranks if "tiktoken" in name else merges
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_ranks(tmp_path) == gpt2.ranks


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.bpe", b"#version: 0.2\na b\n", "not GPT-2's vocabulary"),
        ("vocab.bpe", b"#version: 0.2\n\xff\n", "not a vocabulary of merges or ranks"),
        ("merges.txt.gz", b"no gzip", "cannot be read"),
        ("r50k_base.tiktoken", b"no ranks\n", "not a vocabulary of merges or ranks"),
        ("r50k_base.tiktoken", b"", "not GPT-2's vocabulary"),
        ("other.bpe", b"", "holds no vocabulary of GPT-2"),
    ],
)
def test_other_vocabulary_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        BpeTokenizer.read(tmp_path)
    assert caught.value.hint


def test_larger_vocabulary_is_told_its_limit(tmp_path: Path) -> None:
    lines = (base64.b64encode(str(rank).encode()) + b" %d\n" % rank for rank in range(66_000))
    (tmp_path / "r50k_base.tiktoken").write_bytes(b"".join(lines))
    with pytest.raises(DatasetError, match=r"66,001 tokens, where shards \(uint16\) hold at most 65,536"):
        BpeTokenizer.read(tmp_path)


def test_missing_tiktoken_is_an_error(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(DatasetError, match="tiktoken is not installed") as caught:
        BpeTokenizer.read(vocabulary)
    assert caught.value.hint == "pip install tiktoken"


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer.of(TEXT, documents=2)])
def test_text_survives_a_tokenizer_and_its_description(tokenizer: Tokenizer, vocabulary: Path) -> None:
    again = from_description(tokenizer.described(), vocabulary=vocabulary)
    tokens = tokenizer.encode(TEXT)
    assert again.decode(tokens.tolist()) == TEXT
    assert (again.sha256, again.end_of_document) == (tokenizer.sha256, 0)
    assert int(tokens.max()) < tokenizer.vocabulary


def test_characters_are_numbered_by_their_code_points() -> None:
    tokenizer = CharTokenizer.of("ba漢a", documents=1)
    assert (tokenizer.characters, tokenizer.end_of_document) == ("ab漢", None)
    assert tokenizer.encode("漢ab").tolist() == [2, 0, 1]
    with pytest.raises(DatasetError, match="'c' is none of the characters"):
        tokenizer.encode("abc")


def test_tokenizers_differ_in_their_hash(gpt2: BpeTokenizer, vocabulary: Path) -> None:
    others: list[Tokenizer] = [ByteTokenizer(), CharTokenizer("ab"), CharTokenizer("abc"), gpt2]
    assert len({tokenizer.sha256 for tokenizer in others}) == 4


def test_ranks_are_those_that_tiktoken_reads(
    gpt2: BpeTokenizer, vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the pieces. Its reader wants OpenAI's second file too, written here from the ranks."""
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    from tiktoken_ext.openai_public import r50k_pat_str

    assert r50k_pat_str == BpeTokenizer.PATTERN
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != 32]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)}
    encoder = {"".join(letters[byte] for byte in token): rank for token, rank in gpt2.ranks.items()}
    (tmp_path / "encoder.json").write_text(json.dumps(encoder))
    (tmp_path / "vocab.bpe").write_bytes(gzip.decompress((vocabulary / "vocab.bpe.gz").read_bytes()))
    files = str(tmp_path / "vocab.bpe"), str(tmp_path / "encoder.json")
    assert data_gym_to_mergeable_bpe_ranks(*files, VOCAB_BPE_SHA256) == gpt2.ranks
