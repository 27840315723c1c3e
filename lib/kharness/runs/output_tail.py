"""The end of a run's output as a reader wants it: no colors, no overwritten progress bars."""

from __future__ import annotations

import os
from pathlib import Path

from kharness.config.writing import readable
from kharness.runs.files import OUTPUT_LOG

LINES = 50
# Long enough for a traceback, short enough for a report of a thousand failed runs.
MAX_BYTES = 8192


def output_tail(run: Path, lines: int = LINES, *, since: int = 0, most: int = MAX_BYTES) -> str:
    """The last lines of RUN/output.log from byte `since` on, of at most so many bytes, empty without the
    file; a first line that is cut begins with …
    """
    try:
        with (run / OUTPUT_LOG).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since, size - most))
            raw = file.read(most)
    except OSError:
        return ""
    text = readable(raw.decode("utf-8", "replace"))
    found = text.rstrip("\n").split("\n")
    if size > since + most:
        found[0] = "…" + found[0].lstrip("\ufffd")
    return "\n".join(found[-lines:])
