"""The quarantine: cells that are known to fail, one per line, with the reason.

    # comment
    optimizer-adam_seed-3      # diverges since the change of the data loader
    *_sparsity-0.99            # no such accuracy is promised

Their failures stay in every report and do not count in the exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kharness.config.dotconfig import read_text
from kharness.runs.errors import MatrixError
from monitoring.counts import counted


@dataclass(frozen=True)
class Entry:
    """One line."""

    pattern: str
    """A cell's name, or a pattern as a shell knows it."""
    reason: str
    where: str = ""
    """`known.txt:3`."""


def read_quarantine(path: Path, shown: str) -> list[Entry]:
    """The lines of the file; MatrixError for one without a name or reason, ConfigError for a missing file."""
    entries = []
    # Editors of Windows begin a file with a byte order mark, which would be part of the first name.
    for number, line in enumerate(read_text(path, shown).removeprefix("\ufeff").splitlines(), 1):
        pattern, _, reason = (part.strip() for part in line.partition("#"))
        if not pattern:
            continue
        if not reason or len(pattern.split()) > 1:
            what = "has no reason" if len(pattern.split()) == 1 else "is not one name or pattern"
            raise MatrixError(
                f"{shown}:{number}: {line.strip()!r} {what}",
                hint="write: name-of-the-cell  # why it fails",
            )
        entries.append(Entry(pattern, reason, f"{shown}:{number}"))
    return entries


def quarantined(entries: Sequence[Entry], names: Iterable[str]) -> dict[str, str]:
    """The cells that are in quarantine, with the reason of the first line that means them."""
    found = {}
    for name in names:
        for entry in entries:
            if fnmatchcase(name, entry.pattern):
                found[name] = entry.reason
                break
    return found


def idle(entries: Sequence[Entry], names: Sequence[str]) -> list[str]:
    """Return notes on lines that match no cell: a misspelled name excuses nothing."""
    return [
        f"{entry.where}: {entry.pattern} matches none of {counted(len(names), 'cell')}"
        for entry in entries
        if not any(fnmatchcase(name, entry.pattern) for name in names)
    ]
