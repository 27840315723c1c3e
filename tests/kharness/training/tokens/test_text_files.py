"""Text files as a source: what a folder may hold, where the validation text begins, and files that change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import Piece
from kharness.training.tokens.text_files import TextFiles, stat_sha256


def scan(place: Path, said: list[str] | None = None, *, characters: bool = False) -> TextFiles:
    say = (said if said is not None else []).append
    return TextFiles.scan(place, say=say, collect_characters=characters)


def texts(pieces: list[Piece]) -> dict[str, str]:
    return {split: "".join(p.text for p in pieces if p.split == split) for split in ("train", "validation")}


@pytest.mark.parametrize("largest", [7, 64, 1 << 20])
def test_the_last_tenth_is_for_validation(tmp_path: Path, largest: int) -> None:
    content = "ä b\n" * 60  # the 9 tenths of its 300 bytes end before a character, those of 299 within one
    for size in (300, 299):
        text = content.encode()[:size].decode()
        (tmp_path / "text").write_bytes(text.encode())
        files = replace(scan(tmp_path / "text"), largest_piece=largest)
        found = texts(list(files.pieces()))
        assert found["train"] + found["validation"] == text
        assert len(found["train"].encode()) in (size * 9 // 10, size * 9 // 10 - 1)


def test_pieces_continue_from_every_position(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name} und ö " * 30)
    files = replace(scan(tmp_path), largest_piece=32)
    pieces = list(files.pieces())
    assert [list(files.pieces(piece.after)) for piece in pieces] == [
        pieces[number:] for number in range(1, len(pieces) + 1)
    ]
    assert sum(piece.ends_document for piece in pieces) == 3


def test_huge_line_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "line").write_text("漢" * 1000)
    files = replace(scan(tmp_path / "line"), largest_piece=100)
    pieces = list(files.pieces())
    assert "".join(piece.text for piece in pieces) == "漢" * 1000
    assert max(len(piece.text.encode()) for piece in pieces) <= 100


def test_folder_with_everything_in_it(tmp_path: Path) -> None:
    """Binaries, another encoding, a pipe, links that lead in circles or nowhere, hidden and empty files."""
    place, said = tmp_path / "folder", list[str]()
    (place / "sub" / ".git").mkdir(parents=True)
    (place / "b.txt").write_text("second")
    (place / "sub" / "c.md").write_text("third")
    (place / "a\n.txt").write_text("first")
    (place / "image").write_bytes(b"\x89PNG\0")
    (place / "latin").write_bytes("naïve".encode("latin1"))
    (place / "cut").write_bytes("ä".encode()[:1])
    (place / "sub" / ".git" / "config").write_text("hidden")
    (place / "empty").touch()
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to(place)
    (place / "self").symlink_to("self")
    (place / "nowhere").symlink_to("nothing")
    (place / "z-link").symlink_to("b.txt")
    files = scan(place, said)
    assert [file.name for file in files.files] == ["a\n.txt", "b.txt", "sub/c.md", "z-link"]
    assert said == [f"{place}: skipping what is not UTF-8 text: cut, image, latin"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"caf\xe9 au lait", "not UTF-8 at byte 3"),
        (b"x" * (1 << 20) + b"\xc3(", "not UTF-8 at byte 1,048,576"),
        ("é".encode()[:1], "not UTF-8: its last character is cut off"),
        (b"text\0", "not text: it has a NUL byte"),
        (b"", "holds no text"),
    ],
)
def test_single_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        scan(tmp_path / "text")
    assert caught.value.hint


def test_what_is_not_there_or_has_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="does not exist"):
        scan(tmp_path / "nothing")
    with pytest.raises(DatasetError, match="holds no text"):
        scan(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("secret")
    (tmp_path / "text").chmod(0)
    with pytest.raises(DatasetError, match="text cannot be read: permission denied"):
        scan(tmp_path)


@pytest.mark.parametrize("content", ["longer than before", "short", "as long"])
def test_file_that_changed_after_it_was_scanned_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "text").write_text("content")
    files = scan(tmp_path / "text")
    (tmp_path / "text").write_text(content)
    os.utime(tmp_path / "text", ns=(0, 1))
    with pytest.raises(DatasetError, match="text changed while it was read"):
        list(files.pieces())


def test_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some words " * 20)
    pieces = replace(scan(tmp_path / "text"), largest_piece=50).pieces()
    next(pieces)
    (tmp_path / "text").write_text("gone")
    with pytest.raises(DatasetError, match="text changed while it was read"):
        list(pieces)


def test_state_of_a_folder_is_known_without_reading_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first")
    states = [stat_sha256(tmp_path)]
    for change in (
        lambda: os.utime(tmp_path / "a", ns=(0, 1)),
        lambda: (tmp_path / "b").touch(),
        lambda: (tmp_path / "b").rename(tmp_path / "c"),
    ):
        change()
        states.append(stat_sha256(tmp_path))
    assert len(set(states)) == 4
    assert stat_sha256(tmp_path) == states[-1]


def test_hash_is_of_the_text_alone(tmp_path: Path) -> None:
    for name in ("a", "b", "two/a", "two/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("the same")
    assert scan(tmp_path / "a").sha256 == scan(tmp_path / "b").sha256
    assert scan(tmp_path / "two").sha256 != scan(tmp_path / "a").sha256
    assert scan(tmp_path / "a", characters=True).characters == frozenset("the same")
