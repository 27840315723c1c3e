"""The record next to `.config`: who requested each value, as `.config.origins.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, Resolved
from kharness.config.dotconfig import parse_lines

ORIGINS = ".config.origins.json"


@dataclass(frozen=True)
class Record:
    """Knowledge of the last writer of a `.config` about it."""

    asked: Layer
    """The assignments beyond the defaults, in the order of asking."""
    written: Mapping[str, str]
    """Every symbol of the `.config` as written, with the text right of its `=`; n for one that is not set."""


def make_record(resolved: Resolved) -> Record:
    """The record of a configuration about to be written."""
    return Record(resolved.asked, {line.symbol: line.text or "n" for line in parse_lines(resolved.text, "")})


def read_record(directory: Path) -> Record:
    """The record in a directory; an empty one where it is missing or damaged."""
    try:
        data = json.loads((directory / ORIGINS).read_bytes())
        asked = [
            Assignment(_text(a["symbol"]), _text(a["value"]), Origin(_text(a["kind"]), _text(a["where"])))
            for a in data["asked"]
        ]
        return Record(asked, {_text(name): _text(value) for name, value in dict(data["written"]).items()})
    except (FileNotFoundError, KeyError, RecursionError, TypeError, ValueError):
        return Record([], {})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def record_text(record: Record) -> str:
    """A record as written in the file."""
    asked = [
        {"symbol": a.symbol, "value": a.value, "kind": a.origin.kind, "where": a.origin.where}
        for a in record.asked
    ]
    return json.dumps({"asked": asked, "written": dict(record.written)}, indent=1, ensure_ascii=False) + "\n"
