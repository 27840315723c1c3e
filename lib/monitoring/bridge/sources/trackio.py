"""Trackio's SQLite database, read while it is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import PIECE, Reported, Watched, files_below
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


class TrackioSource:
    """The database of one project; the place is the id of a row."""

    kind, note = "trackio", ""

    def __init__(self, path: Path) -> None:
        self.path = path

    def end(self) -> int:
        """Return the id of the last row."""
        return last_id(self.path)

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the rows after an id."""
        import orjson  # no program waits for it

        from monitoring.bridge.flat import reported

        query = "SELECT id, timestamp, step, metrics FROM metrics WHERE id > ? ORDER BY id"
        for row, stamp, step, text in rows(self.path, query, place):
            found = reported({**orjson.loads(text), "_step": step}, row)
            yield Reported(found.values, row, found.step, _seconds(stamp))


def last_id(path: Path) -> int:
    """Return the highest id of a row in a database's table `metrics`; 0 without one."""
    try:
        ((found,),) = rows(path, "SELECT max(rowid) FROM metrics")
    except ValueError:
        return 0
    return int(found or 0)


def rows(path: Path, query: str, *values: object) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Yield what a query of a database answers that another process writes; nothing is locked or changed.

    ValueError if it is no such database, or not yet.
    """
    import sqlite3  # no program waits for it

    try:
        # sqlite.org/uri.html; the path may have any character
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1)) as found:
            yield from found.execute(query, values)
    except sqlite3.Error as error:
        raise ValueError(f"{path.name}: {error}") from error


def _seconds(stamp: object) -> float | None:
    from datetime import datetime  # as above

    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return None
