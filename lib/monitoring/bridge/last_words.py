"""Finds what a program has said last: its last line, or the exception that has ended it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from monitoring.errors import written_out

# Bytes of output that are looked at: torchrun prints 10 KiB after a rank's exception.
TAIL = 32 * 1024
# What a program prints after its exception as it ends, as W&B does, is not longer.
MOST_LINES = 120
# Characters that a message has room for, and an exception.
LONGEST, LONGEST_RAISED = 100, 400

TRACEBACK = "Traceback (most recent call last):"
# What torchrun raises because a rank has failed.
OF_A_RANK = "ChildFailedError"


def last_line(output: Path) -> str:
    """Return the last line that is not empty, cut to what a message has room for; empty without any."""
    return written_out(next((line.strip()[:LONGEST] for line in reversed(_tail(output)) if line.strip()), ""))


def last_words(output: Path) -> str:
    """Return the line of the exception that a Python program has ended by; without one its last line.

    The message of an exception may have further lines, and a program prints things as it ends.
    """
    raised = _raised(_tail(output)[-MOST_LINES:])
    if not raised:
        return last_line(output)
    prefix, line = raised[-1]
    if OF_A_RANK in line:  # of the ranks the first: the others have missed it
        line = next((said for of, said in raised if of != prefix), line)
    return written_out(line.strip()[:LONGEST_RAISED])


def _raised(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first lines of exceptions, behind the indented ones of a traceback, and what is before each.

    torchrun writes `[rank0]: ` before each line of a rank, between those of others.
    """
    found: list[tuple[str, str]] = []
    begun: dict[str, None] = {}
    for number, line in enumerate(lines):
        before, header, _ = line.partition(TRACEBACK)
        if header:
            begun[before] = None
            continue
        prefix = max((one for one in begun if line.startswith(one)), key=len, default=None)
        text = line if prefix is None else line.removeprefix(prefix)
        if prefix is not None and text.strip() and not text[0].isspace():
            if text.rstrip().endswith(":") and number + 1 < len(lines):
                text = f"{text.rstrip()} {lines[number + 1].removeprefix(prefix).strip()}"
            found.append((prefix, text))
            del begun[prefix]
    return found


def _tail(output: Path) -> list[str]:
    try:
        with output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
