"""The record beside `.config`: who asked for each value, as `.config.origins.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin

ORIGINS = ".config.origins.json"


@dataclass(frozen=True)
class Record:
    """What the last writer of a `.config` knew about it."""

    config_hash: str
    """SHA-256 of the `.config` text it wrote."""
    asked: Layer
    """The assignments beyond the defaults, in the order of asking."""
    follows: Mapping[str, str]
    """Symbols that the user cannot set, and what the others made them."""


def text_hash(text: str) -> str:
    """SHA-256 of a file's text, in hex."""
    return sha256(text.encode()).hexdigest()


def read_record(directory: Path) -> Record | None:
    """The record in a directory; None without one, or with one that was torn by a foreign hand."""
    try:
        data = json.loads((directory / ORIGINS).read_bytes())
        asked = [Assignment(a["symbol"], a["value"], Origin(a["kind"], a["where"])) for a in data["asked"]]
        return Record(data["config_sha256"], asked, data["follows"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def record_text(record: Record) -> str:
    """A record as it stands in the file."""
    data = {
        "config_sha256": record.config_hash,
        "asked": [
            {"symbol": a.symbol, "value": a.value, "kind": a.origin.kind, "where": a.origin.where}
            for a in record.asked
        ],
        "follows": dict(record.follows),
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
