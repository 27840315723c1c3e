"""The record next to `.config`: who requested each value, as `.config.origins.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from kharness.config.assignment import Assignment, Layer, Origin, Resolved

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
    return Record(resolved.asked, resolved.written)


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
    # As `json.dumps(indent=1)` has it, which is not written in C: half of the planning of a large matrix.
    asked = ",".join(map(_asked_text, record.asked))
    written = ",".join(starmap(_written_text, record.written.items()))
    asked, written = (f"{text}\n " if text else "" for text in (asked, written))
    return f'{{\n "asked": [{asked}],\n "written": {{{written}}}\n}}\n'


@functools.lru_cache(maxsize=1024)
def _asked_text(a: Assignment) -> str:
    named = {"symbol": a.symbol, "value": a.value, "kind": a.origin.kind, "where": a.origin.where}
    lines = ",".join(f'\n   "{name}": {_quoted(text)}' for name, text in named.items())
    return f"\n  {{{lines}\n  }}"


@functools.lru_cache(maxsize=4096)
def _written_text(name: str, text: str) -> str:
    return f"\n  {_quoted(name)}: {_quoted(text)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
