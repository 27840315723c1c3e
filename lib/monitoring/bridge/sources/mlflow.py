"""MLflow's SQLite store, read while it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from monitoring.bridge.source import Database, Reported, Watched

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


class MlflowSource(Database):
    """A database of experiments."""

    kind = "mlflow"

    def metrics(self, place: int) -> Iterator[Reported]:
        """Yield one value per row, as MLflow stores them."""
        query = (
            "SELECT rowid, key, value, is_nan, timestamp, step FROM metrics WHERE rowid > ? ORDER BY rowid"
        )
        for row, key, value, is_nan, timestamp, step in self.rows(query, place):
            yield Reported({key: math.nan if is_nan else value}, row, step, timestamp / 1000)

    def config(self, place: int) -> Mapping[str, object]:
        """Return the parameters of runs; of several that have one name the newest run's."""
        query = (
            "SELECT key, value FROM params JOIN runs USING (run_uuid) WHERE run_uuid IN"
            " (SELECT run_uuid FROM metrics WHERE rowid > ?) ORDER BY start_time"
        )
        return {key: _read(text) for key, text in self.rows(query, place)}


def _read(text: str) -> object:
    """Return what a parameter was before MLflow made a text of it."""
    import ast  # no program waits for it
    import json

    try:
        value = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return value
