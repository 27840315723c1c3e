"""Dataset files: the IDX format, and content that is verified whatever compressed it."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from kharness.training.datasets._digits import idx_bytes, read_idx
from kharness.training.datasets._files import DatasetFile, read_verified
from kharness.training.errors import DatasetError

# 2 images of 2x3, written out by hand from the format's description
TWO_IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(12))
FILE = DatasetFile("digits", hashlib.sha256(TWO_IMAGES).hexdigest(), len(TWO_IMAGES))


def test_idx_is_read_and_written() -> None:
    array = read_idx(TWO_IMAGES, name="digits")
    assert array.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert idx_bytes(array) == TWO_IMAGES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "digits: not an IDX file of unsigned bytes"),
        (b"<html>", "digits: not an IDX file of unsigned bytes"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1, 0]), "digits: not an IDX file of unsigned bytes"),
        (TWO_IMAGES[:9], "digits: the IDX header is cut short"),
        (TWO_IMAGES[:-1], "digits: 11 bytes where its header (2, 2, 3) needs 12"),
        (TWO_IMAGES + b"x", "digits: 13 bytes where its header (2, 2, 3) needs 12"),
    ],
)
def test_damaged_idx_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read_idx(content, name="digits")
    assert str(caught.value) == message


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_verified_content_is_the_uncompressed_one(tmp_path: Path, suffix: str) -> None:
    content = gzip.compress(TWO_IMAGES) if suffix else TWO_IMAGES
    (tmp_path / f"digits{suffix}").write_bytes(content)
    assert read_verified(tmp_path, FILE, hint="") == TWO_IMAGES


def test_missing_file_is_an_error_with_the_callers_hint(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        read_verified(tmp_path, FILE, hint="make data fetches it")
    assert str(caught.value) == f"{tmp_path}/digits.gz does not exist"
    assert caught.value.hint == "make data fetches it"


def test_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "digits.gz").write_bytes(gzip.compress(TWO_IMAGES[:-1] + b"x"))
    found = hashlib.sha256(TWO_IMAGES[:-1] + b"x").hexdigest()[:16]
    with pytest.raises(DatasetError) as caught:
        read_verified(tmp_path, FILE, hint="")
    assert str(caught.value) == (
        f"{tmp_path}/digits.gz is damaged: its content has SHA-256 {found}…, not {FILE.sha256[:16]}…"
    )


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "digits.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DatasetError, match="is damaged"):
        read_verified(tmp_path, FILE, hint="")


@pytest.mark.parametrize(
    "content", [gzip.compress(TWO_IMAGES)[:-9], b"not gzip", b""], ids=["truncated", "text", "empty"]
)
def test_broken_gzip_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "digits.gz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"digits\.gz (cannot be read|is damaged)"):
        read_verified(tmp_path, FILE, hint="")
