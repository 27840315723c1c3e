"""JSON lines that the user names: `--follow metrics.jsonl`, one object per line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import Reported, Watched

RICHNESS = 50


def variables(watched: Watched) -> Mapping[str, str]:
    """Return none: the program knows where it writes."""
    return {}


def find(watched: Watched) -> Iterator[JsonLinesSource]:
    """Yield those of the files that the user named which exist."""
    for path in watched.named(".jsonl", ".ndjson", ".json"):
        yield JsonLinesSource(path)


class JsonLinesSource:
    """A file of one object per line; other lines are passed over."""

    kind, note = "jsonl", ""

    def __init__(self, path: Path, *, is_whole: bool = False) -> None:
        """`is_whole`: nobody writes it any more, so that its last line needs no end."""
        self.path = path
        self._is_whole = is_whole

    def place_at(self, size: int) -> int:
        """Return the size: the place is a byte offset."""
        return size

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what stands in whole lines from a byte offset on."""
        import orjson  # no program waits for it

        from monitoring.bridge.flat import reported

        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < place:
                place = 0  # begun anew, by a program that keeps no lines
            file.seek(place)
            for line in file:
                if not (self._is_whole or line.endswith(b"\n")):
                    return
                place += len(line)
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                if isinstance(row, dict):
                    yield reported(row, place)
