"""Trackio: the points of a run in Trackio's own SQLite database, where `trackio show` finds them.

One delivery is one transaction, and its alerts are another. Every row has a log id made from run, seq and
event, every alert an id made from run and seq; the database keeps an id once. So a SIGKILL leaves complete
transactions, and a delivery made twice counts once. No Run object of Trackio's is
made: it would start threads, sample the machine and write when it likes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import shlex
import sqlite3
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from monitoring.follower import Follower, RunInfo
from monitoring.host.name import in_file_names
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ALERTS, ALL_SAMPLES, JOURNAL, sample_event
from monitoring.journal.records import MOST_FIELDS, Fields, Record, alike, seq_of, time_of
from monitoring.no_options import NoOptions
from monitoring.trackers import (
    TrackerPoint,
    journal_metric,
    journal_of,
    require_package,
    shown_names,
    shown_texts,
    step_of,
    untested_note,
    untested_release,
)
from monitoring.trackers._alerts import TrackerAlert, is_alert, tracker_alert
from monitoring.trackers._pictures import TrackerPicture, pictures_of
from monitoring.trackers._trackio_public import PublicTrackio, public_project, read_public, remove_public

JOURNALS = (JOURNAL, *ALL_SAMPLES, ALERTS)

# Trackio names its files after the project; file systems take 255 bytes, and Trackio adds up to 40.
LONGEST_PROJECT = 200

# Trackio's readers put these into the row themselves; its own `log` makes a metric of that name `__NAME`.
RESERVED = frozenset({"project", "run", "timestamp", "step", "time", "metrics"})

# A row's columns next to its id; `space_id`, which is that of a copy on Hugging Face, is null.
INSERT = "INSERT OR IGNORE INTO metrics (timestamp, run_id, run_name, step, metrics, log_id) VALUES "
# SQLite before 3.32 takes 999 values per statement; a row has six.
ROWS_A_STATEMENT = 150
# Rows of many deliveries that one flush may find.
MOST_WAITING = 1000

# Trackio refuses a query that finds more than 10,000 rows.
ROWS_A_QUERY = 10_000


# Releases whose private interface this module was tested with; pyproject.toml says the same.
SUPPORTED = ">=0.43,<0.44"

# It looks at TRACKIO_DIR for its directory.
Options = NoOptions


def check(options: Options) -> None:
    """Raise MissingPackage if Trackio is not installed."""
    require_package("trackio", supported=SUPPORTED)


def note(options: Options) -> str | None:
    """Return a note on the differences of an untested release."""
    return untested_note("trackio", SUPPORTED)


def open_follower(run: RunInfo, options: Options) -> Follower:
    """Deliver to the run's project; MissingPackage if Trackio is not installed."""
    require_package("trackio", supported=SUPPORTED)
    if untested_release("trackio", SUPPORTED) is not None:
        return PublicTrackio(run)
    remove_public(run)
    return TrackioFollower(run)


class TrackioFollower:
    """Writes each delivery as one transaction."""

    def __init__(self, run: RunInfo) -> None:
        self._storage = _storage()
        self._run = run
        self._project = project_name(run.project)
        # None once it is in the database, with the first row of this attempt
        self._config: dict[str, object] | None = dict(run.config)
        self._storage.init_db(self._project)
        self._open = _stays_open(self._storage.get_project_db_path(self._project))
        self._waiting: list[tuple[object, ...]] = []
        """Rows that are not in the database yet."""
        self._last_step: int = self._storage.get_last_step(self._project, run_id=run.run_id) or 0

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the highest seq among the run's rows from that journal."""
        if journal == ALERTS:
            return self._highest_seq("alerts", "alert_id")
        if event := sample_event(journal):
            return self._highest_seq("metrics", "log_id", f"substr(log_id, -{len(event) + 1}) = ':{event}'")
        sampled = [f"log_id LIKE '%:{sample_event(name.replace('*', '%'))}'" for name in ALL_SAMPLES]
        return self._highest_seq("metrics", "log_id", f"NOT ({' OR '.join(sampled)})")

    def _highest_seq(self, table: str, key: str, condition: str = "TRUE") -> int:
        """Return the highest seq of the run's rows; `key` is the column of their ids, of run and seq."""
        seq = f"CAST(substr({key}, {len(self._run.run_id) + 2}) AS INTEGER)"
        rows = f"{table} WHERE {_is_run(self._run, key)} AND {condition}"
        [row] = _query(self._project, f"SELECT MAX({seq}) AS seq FROM {rows}")
        return row["seq"] or 0

    def deliver(self, records: Sequence[Record]) -> None:
        """Add one row for each record that has points or pictures.

        One without a step is at the last step before it.
        """
        rows: list[tuple[object, ...]] = []
        alerts: list[tuple[str, TrackerAlert]] = []
        last_step = self._last_step
        run_id, name = self._run.run_id, self._run.name
        for fields, group in alike(records):
            names, is_sample = _kept_names(fields), journal_of(group[0]) != JOURNAL
            for record in group:
                metrics: dict[str, object] = dict(zip(names, fields.values_in(record), strict=True))
                metrics |= shown_texts(record)
                if is_alert(record) and (alert := tracker_alert(record)) is not None:
                    alerts.append((_shown_time(record), alert))
                pictures = pictures_of(record, fields, self._run.directory, taken=RESERVED)
                if not metrics and not pictures:
                    continue
                step = step_of(record)
                if step is None:
                    step = last_step
                elif not is_sample:
                    last_step = step
                log_id = f"{run_id}:{seq_of(record)}:{fields.event}"
                metrics |= {it.name: self._saved(it, log_id, step) for it in pictures}
                rows.append((_shown_time(record), run_id, name, step, orjson.dumps(metrics), log_id))
        if rows:
            # Only when all records are read: where one raises, the same records are delivered again.
            self._waiting += rows
            self._last_step = last_step
        if alerts or len(self._waiting) >= MOST_WAITING:
            self.flush()
        if alerts:
            self._insert_alerts(alerts)

    def flush(self) -> None:
        """Write the rows of many deliveries as one transaction: each one waits for the disk."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._insert(waiting)

    def close(self, status: str | None) -> None:
        """Let SQLite bring its write-ahead log into the database; Trackio knows no end of a run."""
        self._open.close()

    def _insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert rows as `bulk_log` does, which goes through each value of each row several times.

        Python lets other threads go first at every statement, and at most every 5 ms: one for many rows.
        """
        if self._config is not None:
            self._begin(rows[0])
        path = self._storage.get_project_db_path(self._project)
        with self._storage._get_process_lock(self._project), self._storage._get_connection(path) as database:
            for first in range(0, len(rows), ROWS_A_STATEMENT):
                part = rows[first : first + ROWS_A_STATEMENT]
                values = list(itertools.chain.from_iterable(part))
                database.execute(INSERT + ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(part)), values)

    def _saved(self, picture: TrackerPicture, log_id: str, step: int) -> dict[str, object]:
        """The file of a picture among Trackio's, and the row's cell of it, as `trackio.Image` makes them.

        Its name is always the same: what is delivered again replaces it.
        """
        from trackio.media import TrackioImage, get_project_media_path
        from trackio.utils import MEDIA_DIR

        name = self._run.name
        run = name if name == in_file_names(name) and name.strip(".") else self._run.run_id
        folder = get_project_media_path(project=self._project, run=run, step=step)
        path = folder / f"{uuid.uuid5(uuid.NAMESPACE_OID, f'{log_id}:{picture.name}')}.png"
        write_atomically(path, picture.content)
        return {"_type": TrackioImage.TYPE, "file_path": str(path.relative_to(MEDIA_DIR)), "caption": None}

    def _insert_alerts(self, alerts: Sequence[tuple[str, TrackerAlert]]) -> None:
        """Insert what `trackio.alert` brings into the database, without a thread and without its webhooks."""
        times, shown = zip(*alerts, strict=True)
        self._storage.bulk_alert(
            self._project,
            self._run.name,
            titles=[alert.title for alert in shown],
            texts=[alert.text for alert in shown],
            levels=[alert.level for alert in shown],
            steps=[self._last_step if alert.step is None else alert.step for alert in shown],
            timestamps=list(times),
            alert_ids=[f"{self._run.run_id}:{alert.seq}" for alert in shown],
            run_id=self._run.run_id,
        )

    def _begin(self, row: tuple[Any, ...]) -> None:
        """Write the run's configuration with its first row, as Trackio does."""
        time, _, _, step, metrics, log_id = row
        self._storage.bulk_log(
            self._project,
            self._run.name,
            [orjson.loads(metrics)],
            steps=[step],
            timestamps=[time],
            config=self._shown_config(created=time),
            log_ids=[log_id],
            run_id=self._run.run_id,
        )
        self._config = None

    def _shown_config(self, *, created: str) -> dict[str, object]:
        """Return the configuration with the keys by which Trackio's dashboard sorts and groups."""
        assert self._config is not None
        before = self._storage.get_run_config(self._project, run_id=self._run.run_id) or {}
        group = self._run.group
        return {**self._config, "_Created": before.get("_Created", created), "_Group": group}


def read_back(run: RunInfo, options: Options) -> list[TrackerPoint]:
    """Return the run's points in Trackio's database, through Trackio's own read-only query."""
    if (public := read_public(run)) is not None:
        return public
    found: list[TrackerPoint] = []
    after = 0
    while True:
        rows = _query(
            project_name(run.project),
            f"SELECT id, step, metrics, log_id FROM metrics WHERE {_is_run(run)} AND id > {after} "
            f"ORDER BY id LIMIT {ROWS_A_QUERY}",
        )
        for row in rows:
            _, seq, event = row["log_id"].split(":")
            step = None if event == "end" else row["step"]
            for name, value in orjson.loads(row["metrics"]).items():
                if isinstance(value, (str, dict)):
                    continue
                kept = name.removeprefix("__")
                metric = journal_metric(kept if kept in RESERVED else name, event)
                found.append(TrackerPoint(int(seq), event, step, metric, value))
        if len(rows) < ROWS_A_QUERY:
            return found
        after = rows[-1]["id"]


def database(project: str) -> Path:
    """Return the file that holds a project."""
    return Path(_storage().get_project_db_path(project_name(project)))


def where(run: RunInfo) -> str:
    """Return how to see the run."""
    if untested_release("trackio", SUPPORTED) is not None:
        return f"trackio show --project {public_project(run.project)}"
    project = shlex.quote(project_name(run.project))
    return f"trackio show --project {project}  (database {database(run.project)})"


def show(project: str, *, port: int, open_browser: bool = True) -> None:
    """Serve Trackio's dashboard of a project on 127.0.0.1 until Ctrl-C."""
    require_package("trackio", supported=SUPPORTED)
    import trackio

    untested = untested_release("trackio", SUPPORTED) is not None
    name = public_project(project) if untested else project_name(project)
    trackio.show(project=name, server_port=port, open_browser=open_browser, block_thread=True, share=False)


def project_name(project: str) -> str:
    """Return the name under which Trackio keeps a project: the name itself where it can be a file's name.

    Trackio drops characters until a file name is left, so that `a/b` and `ab` were one project, and refuses
    names that end like its side files. Such a name keeps what can stay and gets 6 hex digits of its own.
    """
    storage = _storage()
    from trackio.utils import canonical_project_name

    kept: str = canonical_project_name(project)
    try:
        storage.validate_project_name(project)
        if kept == project and len(project.encode()) <= LONGEST_PROJECT:
            return project
    except ValueError:
        kept = kept.removeprefix("registry-")
    kept = kept.encode()[: LONGEST_PROJECT - 7].decode(errors="ignore")
    return f"{kept}-{hashlib.md5(project.encode(), usedforsecurity=False).hexdigest()[:6]}"


@functools.lru_cache(maxsize=MOST_FIELDS)
def _kept_names(fields: Fields) -> tuple[str, ...]:
    """Return the names of the points in Trackio."""
    return tuple(f"__{name}" if name in RESERVED else name for name in shown_names(fields))


def _stays_open(database: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, beside those of Trackio's that last one transaction.

    When the last connection closes, SQLite empties the write-ahead log into the database and waits twice for
    the disk (sqlite.org/wal.html): that was most of what a delivery took.
    """
    connection = sqlite3.connect(database, check_same_thread=False)
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()  # it counts from the first read on
    return connection


def _shown_time(record: Record) -> str:
    return datetime.fromtimestamp(time_of(record), UTC).isoformat()


def _is_run(run: RunInfo, key: str = "log_id") -> str:
    """Return the condition on a row; run ids are hexadecimal, so nothing needs quoting."""
    return f"run_id = '{run.run_id}' AND {key} LIKE '{run.run_id}:%'"


def _query(project: str, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _storage().query_project(project, query)["rows"]
    return rows


def _storage() -> Any:
    require_package("trackio", supported=SUPPORTED)
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage
