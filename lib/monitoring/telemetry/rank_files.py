"""The files of telemetry/ in a run directory: each rank writes its own, and reads those of all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import TELEMETRY_SUMMARIES, telemetry_name


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step; a reader never meets half of it. OSError names it."""
    data = orjson.dumps(content, option=orjson.OPT_INDENT_2)
    write_atomically(path, data, durable=False, prompt=True)  # the next one is a log interval away


def read_summaries(directory: Path) -> dict[int, dict[str, Any]]:
    """The newest summary of each rank that has left one, by rank; without those that cannot be read."""
    found = {}
    for path in directory.glob(TELEMETRY_SUMMARIES):
        try:
            summary = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):  # not a rank's, or a disk that does not answer now
            continue
        rank = summary.get("rank") if isinstance(summary, dict) else None
        if isinstance(rank, int) and path.name == telemetry_name("", rank):
            found[rank] = summary
    return dict(sorted(found.items()))
