"""Calls of trackers that are recorded in the program itself (`--hook`): every digit, at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.hook import ENDING, FOLDER, PATH
from monitoring.bridge.source import Reported, Watched, files_below, whole_lines

RICHNESS = 95


def variables(watched: Watched) -> Mapping[str, str]:
    """Return none: `hooked` adds to one that the program may have."""
    return {}


def find(watched: Watched) -> Iterator[HookSource]:
    """Yield one source per process that has called a tracker."""
    for path in files_below(watched.own("spool"), ENDING):
        yield HookSource(path)


def is_expected(watched: Watched) -> bool:
    """Whether calls are recorded: a process has no file before its first."""
    return watched.environment.get(PATH, "").startswith(FOLDER)


class HookSource:
    """A file that one process writes; the place is a byte offset."""

    kind, note = "hook", ""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the calls after a byte offset."""
        import json  # no program waits for it; it reads NaN, which orjson does not

        from monitoring.bridge.flat import reported

        for line, end in whole_lines(self.path, place):
            row = json.loads(line)
            found = reported({**row["values"], "_step": row["step"]}, end)
            yield Reported(found.values, end, found.step, row["time"])
