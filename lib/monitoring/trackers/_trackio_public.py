"""Trackio through its public interface alone, for releases whose database this project does not know.

`trackio.init`, `log`, `alert` and `finish`, in the agent's process and threads of Trackio's. Nothing public
says which rows of a run are in the database after a SIGKILL, nor can a row be given an identity. So each
agent writes the whole run again from its journal, as a new run of the same name, and deletes the earlier one,
whose id stands in RUN/trackio.json: the run that stays has each record once. A row's time is that of its
delivery.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from monitoring.follower import RunInfo
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record, alike, points, read_records, seq_of
from monitoring.trackers import (
    TrackerPoint,
    event_of,
    journal_of,
    shown_names,
    shown_points,
    shown_texts,
    step_of,
)
from monitoring.trackers._alerts import TrackerAlert, is_alert, tracker_alert
from monitoring.trackers._pictures import TrackerPicture, pictures_of, warn

STATE = "trackio.json"

# Longest name of a project, 7 characters of which may be its own.
LONGEST_PROJECT = 200

# What is off: Trackio's samples of the machine, and its page in a notebook.
OFF = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}

# Seconds that a question to Trackio's command may take.
QUERY_SECONDS = 60.0

# Trackio's command answers it with 10,000 rows at most.
ROWS_A_QUERY = 10_000

Row = tuple[dict[str, object], list[TrackerPicture], int]


class PublicTrackio:
    """Writes the run anew: it holds nothing when it is opened."""

    def __init__(self, run: RunInfo) -> None:
        self._info = run
        self._project = public_project(run.project)
        self._run: Any = None
        self._seqs: dict[str, int] = {}
        self._last_step = 0
        self._logged = 0

    def last_seq(self, journal: str = JOURNAL) -> int:
        """The seq of the journal's last record that this follower was given."""
        return self._seqs.get(journal, 0)

    def deliver(self, records: Sequence[Record]) -> None:
        """Log one row for each record that has points or pictures.

        What a record's content raises is raised before the first row is logged.
        """
        rows, alerts, last_step = self._rows(records)
        try:
            if rows or alerts:
                self._log(rows, alerts)
        except Exception as error:
            raise RuntimeError(f"Trackio's public interface: {type(error).__name__}: {error}") from error
        self._last_step = last_step
        for record in records:
            self._seqs[journal_of(record)] = seq_of(record)

    def flush(self) -> None:
        """Nothing: what a SIGKILL of this process leaves in the database is replaced by the next one."""

    def close(self, status: str | None) -> None:
        """Have Trackio write all; RuntimeError if it does not hold every row then."""
        if self._run is None:
            return
        import trackio

        run, self._run = self._run, None
        with _quiet():
            trackio.finish()
        held = rows_of(self._project, run.id, "COUNT(*) AS n")
        if held and held[0]["n"] != self._logged:
            raise RuntimeError(f"Trackio holds {held[0]['n']} of {self._logged} rows")

    def _rows(self, records: Sequence[Record]) -> tuple[list[Row], list[TrackerAlert], int]:
        rows: list[Row] = []
        alerts: list[TrackerAlert] = []
        last_step = self._last_step
        for fields, group in alike(records):
            names, is_sample = shown_names(fields), journal_of(group[0]) != JOURNAL
            for record in group:
                row: dict[str, object] = dict(zip(names, fields.values_in(record), strict=True))
                row |= shown_texts(record)
                if is_alert(record) and (alert := tracker_alert(record)) is not None:
                    alerts.append(alert)
                pictures = pictures_of(record, fields, self._info.directory)
                if not row and not pictures:
                    continue
                step = step_of(record)
                if step is None:
                    step = last_step
                elif not is_sample:
                    last_step = step
                rows.append((row, pictures, step))
        return rows, alerts, last_step

    def _log(self, rows: Sequence[Row], alerts: Sequence[TrackerAlert]) -> None:
        import trackio

        with _quiet():
            if self._run is None:
                self._begin()
            for row, pictures, step in rows:
                with tempfile.TemporaryDirectory() if pictures else contextlib.nullcontext("") as folder:
                    for number, picture in enumerate(pictures):
                        path = Path(folder) / f"{number}.png"
                        path.write_bytes(picture.content)
                        row[picture.name] = trackio.Image(str(path))
                    trackio.log(row, step=step)
            for alert in alerts:
                trackio.alert(alert.title, alert.text, level=trackio.AlertLevel(alert.level))
        self._logged += len(rows)

    def _begin(self) -> None:
        import trackio

        _delete(self._info, [*_state(self._info), (self._project, self._info.run_id)])
        warnings.filterwarnings("ignore", message="Reserved keys renamed")  # as in trackio.py
        known = inspect.signature(trackio.init).parameters
        self._run = trackio.init(
            project=self._project,
            name=self._info.name,
            group=self._info.group,
            config={key.lstrip("_") or "config": value for key, value in self._info.config.items()},
            **{key: value for key, value in OFF.items() if key in known},
        )
        state = {"project": self._project, "run": self._run.id}
        write_atomically(self._info.directory / STATE, orjson.dumps(state, option=orjson.OPT_APPEND_NEWLINE))


def remove_public(run: RunInfo) -> None:
    """Delete the run that the public interface has written, if there is one: its rows are in the journal."""
    if state := _state(run):
        _delete(run, state)
        (run.directory / STATE).unlink(missing_ok=True)


def public_project(project: str) -> str:
    """The name under which Trackio's public interface keeps a project.

    Letters, digits, `-` and `_` are taken as they are; another name gets 6 hex digits of its own.
    """
    kept = "".join(sign for sign in project if sign.isalnum() or sign in "-_")
    if kept == project and kept and len(kept.encode()) <= LONGEST_PROJECT:
        return project
    kept = kept.encode()[: LONGEST_PROJECT - 7].decode(errors="ignore")
    return f"{kept}-{hashlib.md5(project.encode(), usedforsecurity=False).hexdigest()[:6]}"


def read_public(run: RunInfo) -> list[TrackerPoint] | None:
    """Return what Trackio holds of a run written by its public interface, None of another one.

    Its rows say nothing of seq and event: they are those of the record of the journal in the same place.
    """
    if not (state := _state(run)):
        return None
    records = [it for it, _ in read_records(run.directory / JOURNAL) if shown_points(it)]
    rows: list[Mapping[str, Any]] = []
    while more := rows_of(*state[0], "id, step, metrics", after=rows[-1]["id"] if rows else 0):
        rows += more
    found = []
    for number, row in enumerate(rows):
        record = records[number] if number < len(records) else None
        event = event_of(record) if record is not None else ""
        shown = dict(zip(shown_points(record), points(record), strict=True)) if record is not None else {}
        for name, value in orjson.loads(row["metrics"]).items():
            if isinstance(value, (str, dict)):
                continue
            kept = shown.get(name) or shown.get(name.removeprefix("__"), name)
            step = None if event == "end" else row["step"]
            found.append(TrackerPoint(seq_of(record) if record is not None else 0, event, step, kept, value))
    return found


def rows_of(project: str, run_id: str, columns: str, *, after: int = 0) -> list[dict[str, Any]]:
    """Rows of a run by Trackio's command `query`; none where this release answers in another way."""
    if not re.fullmatch(r"[\w-]+", run_id):
        return []
    query = f"SELECT {columns} FROM metrics WHERE run_id = '{run_id}' AND id > {after} ORDER BY id"
    command = "from trackio.cli import main; main()"
    words = ["query", "project", "--project", project, "--json", "--sql", f"{query} LIMIT {ROWS_A_QUERY}"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", command, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_SECONDS,
            check=True,
        )
        rows: list[dict[str, Any]] = orjson.loads(done.stdout)["rows"]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        warn(f"Trackio's rows were not counted: {error}")
        return []
    return rows


def _state(run: RunInfo) -> list[tuple[str, str]]:
    """Project and id of the run that was written, none if there is none."""
    try:
        state = orjson.loads((run.directory / STATE).read_bytes())
        return [(str(state["project"]), str(state["run"]))]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _delete(run: RunInfo, written: Sequence[tuple[str, str]]) -> None:
    """Delete these runs; one that Trackio does not delete stays, and agent.log says so."""
    import trackio

    try:
        for project, run_id in dict.fromkeys(written):
            with contextlib.suppress(ValueError):  # no such project
                for one in trackio.Api().runs(project):
                    if one.id == run_id:
                        one.delete()
    except Exception as error:  # noqa: BLE001 - another release's interface; the run is written all the same
        warn(f"an earlier copy of run {run.name} stays in Trackio: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep off the terminal what Trackio says to somebody who sits before it."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
