"""Calls of trackers that are recorded in the program itself (`--hook`): every digit, at once."""

from __future__ import annotations

from collections.abc import Iterator

from monitoring.bridge.hook import ENDING, FOLDER, PATH
from monitoring.bridge.source import MetricSource, Reported, Watched, files_below, whole_lines

RICHNESS = 95


def find(watched: Watched) -> Iterator[HookSource]:
    """Return one source per process that has called a tracker."""
    return map(HookSource, files_below(watched.own("spool"), ENDING))


def is_expected(watched: Watched) -> bool:
    """Whether calls are recorded: a process has no file before its first."""
    return watched.environment.get(PATH, "").startswith(FOLDER)


class HookSource(MetricSource):
    """A file that one process writes; the place is a byte offset."""

    kind = "hook"

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the calls after a byte offset."""
        import json  # no program waits for it; it reads NaN, which orjson does not

        from monitoring.bridge.flat import reported

        for line, end in whole_lines(self.path, place):
            row = json.loads(line)
            found = reported({**row["values"], "_step": row["step"]}, end)
            yield Reported(found.values, end, found.step, row["time"])
