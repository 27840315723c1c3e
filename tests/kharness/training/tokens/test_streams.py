"""Windows of a stream against the array that it is, wherever its shards end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kharness.training.errors import DatasetError
from kharness.training.tokens.manifest import Shard
from kharness.training.tokens.streams import TokenStream

TOKENS = np.arange(65_400, 65_400 + 100).astype(np.uint16)


@pytest.fixture(params=[(100,), (40, 60), (1, 2, 3, 94), (99, 1)], ids=str)
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStream:
    shards, start = [], 0
    for number, size in enumerate(request.param):
        (tmp_path / f"{number}").write_bytes(TOKENS[start : start + size].astype("<u2").tobytes())
        shards.append(Shard(f"{number}", size, ""))
        start += size
    return TokenStream.mapped(tmp_path, shards)


def test_windows_are_those_of_the_entire_stream(stream: TokenStream) -> None:
    starts = np.array([0, 93, 38, 2, 0])
    expected = np.stack([TOKENS[start : start + 7] for start in starts])
    assert len(stream) == 100
    assert np.array_equal(stream.windows(starts, 7), expected)
    assert stream.windows(starts, 7).dtype == np.uint16
    stream.read_ahead(starts, 7)
    assert stream.windows(np.array([], dtype=np.int64), 7).shape == (0, 7)
    assert stream.windows(np.array([3, 100]), 0).shape == (2, 0)


@pytest.mark.parametrize("start", [-1, 94])
def test_window_beyond_the_stream_is_refused(stream: TokenStream, start: int) -> None:
    with pytest.raises(IndexError):
        stream.windows(np.array([start]), 7)


def test_read_ahead_asks_for_pages_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses a range that is none of its pages; small streams ask for nothing."""
    monkeypatch.setattr("kharness.training.tokens.streams._SMALL", 0)
    (tmp_path / "0").write_bytes(bytes(100_000))
    (tmp_path / "1").write_bytes(bytes(2))
    stream = TokenStream.mapped(tmp_path, [Shard("0", 50_000, ""), Shard("1", 1, "")])
    starts = np.array([0, 3000, 49_990, 49_999])
    stream.read_ahead(starts, 2)
    assert stream.windows(starts, 2).tolist() == [[0, 0]] * 4


def test_missing_and_empty_shards_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("missing", "empty"):
        with pytest.raises(DatasetError, match=f"{name} cannot be read"):
            TokenStream.mapped(tmp_path, [Shard(name, 1, "")])
    assert len(TokenStream.mapped(tmp_path, [])) == 0
