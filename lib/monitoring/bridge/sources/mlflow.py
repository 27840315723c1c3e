"""MLflow's SQLite store, read while it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitoring.bridge.source import Reported, Watched
from monitoring.bridge.sources.trackio import last_id, rows

URI = "MLFLOW_TRACKING_URI"
SQLITE = "sqlite:///"

RICHNESS = 60
SHARED = True


def variables(watched: Watched) -> Mapping[str, str]:
    """Give the program a database in the run directory, if the user has set no store."""
    return {URI: f"{SQLITE}{watched.own('mlflow.db')}"}


def find(watched: Watched) -> Iterator[MlflowSource]:
    """Yield the program's database; a server is not read."""
    uri = watched.environment.get(URI, "")
    path = watched.cwd / uri.removeprefix(SQLITE)
    if uri.startswith(SQLITE) and path.is_file() and watched.is_new_database(path):
        yield MlflowSource(path)


class MlflowSource:
    """A database; the place is the id of a row."""

    kind, note = "mlflow", ""

    def __init__(self, path: Path) -> None:
        self.path = path

    def end(self) -> int:
        """Return the id of the last row."""
        return last_id(self.path)

    def read(self, place: int) -> Iterator[Reported]:
        """Yield one value per row, as MLflow stores them."""
        query = (
            "SELECT rowid, key, value, is_nan, timestamp, step FROM metrics WHERE rowid > ? ORDER BY rowid"
        )
        for row, key, value, is_nan, timestamp, step in rows(self.path, query, place):
            yield Reported({key: math.nan if is_nan else value}, row, step, timestamp / 1000)
