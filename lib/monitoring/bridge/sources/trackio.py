"""Trackio's SQLite database, read while it is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import PIECE, Database, Reported, Watched, files_below
from monitoring.journal.files import OUTPUT_LOG

RICHNESS = 80
SHARED = True

# What Trackio prints when a run begins.
SAID = b"* Trackio project initialized: "


def variables(watched: Watched) -> Mapping[str, str]:
    """Put the databases into the run directory."""
    return {"TRACKIO_DIR": str(watched.own("trackio"))}


def find(watched: Watched) -> Iterator[TrackioSource]:
    """Yield one source per database that is new."""
    if folder := watched.environment.get("TRACKIO_DIR"):
        for path in files_below(Path(folder), ".db"):
            if watched.is_new_database(path):
                yield TrackioSource(path)


def is_expected(watched: Watched) -> bool:
    """Whether the program has said that a run begins; its database comes half a second after a value."""
    with contextlib.suppress(OSError), (watched.directory / OUTPUT_LOG).open("rb") as output:
        return SAID in output.read(PIECE)
    return False


class TrackioSource(Database):
    """The database of one project."""

    kind = "trackio"

    def metrics(self, place: int) -> Iterator[Reported]:
        """Yield the rows after an id."""
        import orjson  # no program waits for it

        from monitoring.bridge.flat import reported

        query = "SELECT id, timestamp, step, metrics FROM metrics WHERE id > ? ORDER BY id"
        for row, stamp, step, text in self.rows(query, place):
            found = reported({**orjson.loads(text), "_step": step}, row)
            yield Reported(found.values, row, found.step, _seconds(stamp))

    def config(self, place: int) -> Mapping[str, object]:
        """Return the configuration of runs, which Trackio writes with their first row."""
        import orjson  # as above

        query = (
            "SELECT config FROM configs WHERE run_id IN (SELECT run_id FROM metrics WHERE id > ?) ORDER BY id"
        )
        return {
            name: value for (text,) in self.rows(query, place) for name, value in orjson.loads(text).items()
        }


def _seconds(stamp: object) -> float | None:
    from datetime import datetime  # no program waits for it

    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return None
