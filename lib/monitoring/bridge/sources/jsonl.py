"""JSON lines that the user names: `--follow metrics.jsonl`, one object per line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from monitoring.bridge.source import CUT_OFF, Lines, Reported, Watched

RICHNESS = 50


def find(watched: Watched) -> Iterator[JsonLinesSource]:
    """Return those of the files that the user named which exist."""
    return map(JsonLinesSource, watched.named(".jsonl", ".ndjson", ".json"))


class JsonLinesSource(Lines):
    """A file of one object per line; other lines are passed over."""

    kind = "jsonl"

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what stands in whole lines from a byte offset on."""
        from monitoring.bridge.flat import reported  # no program waits for it

        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < place:
                place = 0  # begun anew, by a program that keeps no lines
            file.seek(place)
            for line in file:
                is_ended = line.endswith(b"\n")
                if not (self.is_whole or is_ended):
                    return
                place += len(line)
                try:
                    row = _read(line)
                    found = reported(row, place) if isinstance(row, dict) else None
                except ValueError:
                    text = line.decode("utf-8", "replace").strip()[:60]
                    if is_ended and text and not self.left_out:
                        self.left_out = f"has a line that is no JSON, which is left out: {text!r}"
                    continue
                if found is not None:
                    yield found

    def cut_off(self, place: int) -> str:
        """Say that the last line, after a place, has no end and is no JSON; empty for a whole one."""
        with self.path.open("rb") as file:
            file.seek(place)
            return CUT_OFF if file.read().rpartition(b"\n")[2].strip() else ""


def _read(line: bytes) -> Any:
    """Return the value of a line, with NaN as Python writes it; ValueError for what is no JSON."""
    import orjson  # as above

    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        import json

        try:
            return json.loads(line)
        except RecursionError as error:  # nobody's metrics are nested so deep
            raise ValueError(str(error)) from error
