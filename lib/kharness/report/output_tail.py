"""The end of a run's output as a reader wants it: no colours, no overwritten progress bars."""

from __future__ import annotations

import os
import re
from pathlib import Path

LINES = 50
# Long enough for a traceback, short enough for a report of a thousand failed runs.
MAX_BYTES = 8192

# ECMA-48 control sequences (colours, cursor), operating system commands (titles), and two-byte escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What neither XML 1.0 nor a terminal's reader can use; tabs and line ends stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def output_tail(run: Path, lines: int = LINES) -> str:
    """The last lines of RUN/output.log, empty if there is none; a first line that is cut begins with …"""
    try:
        with (run / "output.log").open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MAX_BYTES))
            raw = file.read(MAX_BYTES)
    except OSError:
        return ""
    text = readable(raw.decode("utf-8", "replace"))
    found = text.rstrip("\n").split("\n")
    if size > MAX_BYTES:
        found[0] = "…" + found[0].lstrip("\ufffd")
    return "\n".join(found[-lines:])


def readable(text: str) -> str:
    """Text without terminal controls; of what a progress bar overwrote, the last state."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROL.sub("\ufffd", text)
