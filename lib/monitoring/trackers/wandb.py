"""W&B: a run's points as an offline run in RUN/wandb, uploaded by W&B's own `sync`, live where it can be.

The follower writes the run's transaction log (`offline-run-*/run-ID.wandb`) itself, in W&B's records. It does
not call wandb.init, which starts a service that writes when it likes, and a new log in each life of the
agent: `wandb sync` begins each log at line 0 of the run's history, so a second log replaces lines of the
first. One log that grows is sound: `wandb sync` again sends the same lines. A row's `_step` is its seq, or,
with rows of GPU samples in between, the next free number; its column `seq` then has the seq.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from monitoring.follower import Follower, RunInfo
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ALERTS, ALL_SAMPLES, JOURNAL, journal_of_event
from monitoring.journal.records import MOST_FIELDS, Fields, Record, alike, seq_of, time_of
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
from monitoring.trackers._alerts import tracker_alert
from monitoring.trackers._pictures import TrackerPicture, pictures_of
from monitoring.trackers._wandb_log import LogWriter, read_log
from monitoring.trackers._wandb_public import (
    COLUMNS,
    EXIT_CODES,
    Disabled,
    begins_log,
    may_have_login,
    open_public,
    remove_public,
)
from monitoring.trackers._wandb_records import Columns, LogRecords, alert_seq, is_row, media_cell, row_of
from monitoring.trackers._wandb_upload import (
    UPLOAD_LOCK,
    Uploader,
    from_here,
    is_uploaded,
    typed_wandb,
    unmark,
    uploaded_to,
)

JOURNALS = (JOURNAL, *ALL_SAMPLES, ALERTS)

# While it catches up in a process of its own, which ends before the run does; the upload comes after that.
OPTIONS_APART = {"offline": True}

# The cell `event` of an encoded row: its name, and JSON after a length of one byte.
EVENT_CELL = re.compile(rb'\x12\x05event\x82\x01."([^"]+)"', re.DOTALL)

T = TypeVar("T")

# Releases whose private interface this module was tested with; pyproject.toml says the same.
SUPPORTED = ">=0.31,<0.32"


@dataclass(frozen=True)
class Options:
    """Where and how W&B gets the run; the project and the names come from the run itself."""

    entity: str
    """Team or user; empty is the default of the login."""
    offline: bool
    """Never upload; `wandb sync` does it later."""
    upload_seconds: float = 60.0
    """How long the end of a run waits for its upload before an alert says that it is to be repeated."""


def check(options: Options) -> None:
    """Raise MissingPackage if wandb is not installed."""
    require_package("wandb", supported=SUPPORTED)


def note(options: Options) -> str | None:
    """Return a note on the differences of an untested release."""
    return untested_note("wandb", SUPPORTED)


def open_follower(run: RunInfo, options: Options) -> Follower:
    """Deliver to the run's transaction log, and upload it if W&B is online; MissingPackage without wandb."""
    require_package("wandb", supported=SUPPORTED)
    if untested_release("wandb", SUPPORTED) is not None:
        patience = options.upload_seconds
        return open_public(run, entity=options.entity, offline=options.offline, patience=patience)
    if _mode() == "disabled":
        return Disabled()
    remove_public(run)
    return WandbFollower(run, options)


class WandbFollower:
    """Appends each delivery to the log with one write."""

    def __init__(self, run: RunInfo, options: Options) -> None:
        self._run = run
        self._options = options
        self._log = _read_state(run)
        self._writer: LogWriter | None = None
        self._uploader: Uploader | None = None
        self._defined: set[str] = set()

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the seq of the journal's last complete row in the log."""
        return self._log.seqs.get(journal, 0)

    def deliver(self, records: Sequence[Record]) -> None:
        """Add one row for each record that has points or pictures; the last values are the run's summary."""
        out = LogRecords(_record, self._log.records)
        if self._writer is None:
            if not any(map(begins_log, records)):
                return  # nothing for a log, which may be uploaded already
            self._begin(out, records[0])
        seqs, step = self._add_rows(out, records)
        if self._writer is None:
            self._writer = self._open(records[0])
        self._writer.append(out.encoded)
        self._defined |= out.defined
        self._log.records = out.number
        self._log.seqs, self._log.step = seqs, step
        self._start_upload()

    def flush(self) -> None:
        """Bring the log to the disk."""
        if self._writer is not None:
            self._writer.sync()

    def close(self, status: str | None) -> None:
        """Write how the run ended, and wait for the upload; UploadUnfinished if it takes too long."""
        if self._log.path is None:
            return
        exit_code = None if status is None else EXIT_CODES.get(status, 1)
        if exit_code is not None and self._log.exit_code != exit_code:
            unmark(self._log.path)
            writer = self._writer or LogWriter(self._log.path, self._log.end)
            out = LogRecords(_record, self._log.records)
            out.exit(exit_code)
            writer.append(out.encoded)
            writer.sync()
            writer.close()
        elif self._writer is not None:
            self._writer.close()
        self._writer = None
        if status is not None and is_uploaded(self._log.path):
            return
        self._start_upload()
        if self._uploader is not None:
            self._uploader.finish(ended=status is not None)

    def _begin(self, out: LogRecords, first: Record) -> None:
        """Add what stands before the first rows of this life of the follower."""
        if not self._log.records:
            self._log.start = time_of(first)
            out.begin(self._run, entity=self._options.entity, start=self._log.start, producer=_version())
        else:
            out.configuration(self._run.config)

    def _open(self, first: Record) -> LogWriter:
        """Return the log's writer: it begins after the last row, over an earlier attempt's end."""
        if self._log.path is None:
            self._log.path = _new_path(self._run, time_of(first))
        unmark(self._log.path)
        self._log.exit_code = None
        return LogWriter(self._log.path, self._log.end)

    def _add_rows(self, out: LogRecords, records: Sequence[Record]) -> tuple[dict[str, int], int]:
        """Add the rows and the summary; return the journals' last seqs and the log's last `_step` then."""
        latest: dict[Columns, tuple[Sequence[float], dict[str, object]]] = {}
        seqs, row_step = dict(self._log.seqs), self._log.step
        for fields, group in alike(records):
            journal = journal_of(group[0])
            if journal == ALERTS:
                self._add_alerts(out, group, seqs)
                continue
            for record in group:
                others: dict[str, object] = {**shown_texts(record)}
                pictures = pictures_of(record, fields, self._run.directory, taken=COLUMNS)
                if not fields.names and not others and not pictures:
                    continue
                seq, step, time = seq_of(record), step_of(record), time_of(record)
                seqs[journal] = seq
                # its seq, until rows of another journal have come between
                row_step = row_step + 1 if journal != JOURNAL else max(seq, row_step + 1)
                for picture in pictures:
                    others[picture.name] = self._add_file(out, picture, step=row_step)
                columns = _columns(fields, step is not None, row_step != seq)
                if others or columns not in latest:
                    self._define(out, [*shown_names(fields), *others])
                numbers = [*_without_columns(fields, fields.values_in(record)), row_step, time]
                numbers.append(max(0.0, time - self._log.start))
                if step is not None:
                    numbers.append(step)
                if row_step != seq:
                    numbers.append(seq)
                out.history(columns, numbers, others, step=row_step)
                # moved to the end: of a metric that several layouts have, the summary shows the last value
                latest.pop(columns, None)
                latest[columns] = numbers, others
        if latest:
            rows = [columns.row(numbers) | others for columns, (numbers, others) in latest.items()]
            out.summary({name: value for row in rows for name, value in row.items()})
        return seqs, row_step

    def _add_file(self, out: LogRecords, picture: TrackerPicture, *, step: int) -> dict[str, object]:
        """The file of a picture next to the log, which is uploaded with it; returns the row's cell of it."""
        log = self._log.path or _new_path(self._run, self._log.start)
        cell = media_cell(picture, step=step)
        path = log.parent / "files" / str(cell["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, picture.content)
        out.file(str(cell["path"]))
        return cell

    def _add_alerts(self, out: LogRecords, records: Sequence[Record], seqs: dict[str, int]) -> None:
        for record in records:
            if (alert := tracker_alert(record)) is not None:
                out.alert(self._run.run_id, alert)
                seqs[ALERTS] = alert.seq

    def _define(self, out: LogRecords, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._defined and name not in out.defined:
                out.define(name)

    def _start_upload(self) -> None:
        assert self._log.path is not None
        if not self._log.records:
            return
        if self._uploader is None and not self._options.offline and _is_online():
            self._uploader = Uploader(
                self._run.directory, self._log.path, patience=self._options.upload_seconds
            )
        if self._uploader is not None:
            self._uploader.keep_alive()


def read_back(run: RunInfo, options: Options) -> list[TrackerPoint]:
    """Return the points in the run's transaction log."""
    path = _path(run)
    found: list[TrackerPoint] = []
    for stored in read_log(path) if path is not None else ():
        row = row_of(_record(stored.data))
        if row is None:
            continue
        event = row["event"]
        for name, value in row.items():
            if name not in COLUMNS and not isinstance(value, (str, dict)):
                seq = row.get("seq", row["_step"])
                found.append(
                    TrackerPoint(seq, event, row.get("global_step"), journal_metric(name, event), value)
                )
    return found


def where(run: RunInfo) -> str:
    """Return how to see the run: the address it was uploaded to, or the command that uploads it."""
    path = _path(run)
    if path is None:
        return "W&B is disabled (WANDB_MODE); nothing was recorded"
    return uploaded_to(path) or typed_wandb("sync", path.parent)


def upload_command(directory: Path, options: Options) -> str | None:
    """Return the commands that upload an offline run, None if it is sent as it is, or not recorded.

    W&B decides that in the agent, and the trainer does not import it: by what is certain without it, and else
    by what the agent has done.
    """
    mode, folder = os.environ.get("WANDB_MODE", ""), directory / "wandb"
    if mode == "disabled":
        return None
    if not (options.offline or mode in ("offline", "dryrun") or not may_have_login()):
        logs = folder.glob("offline-run-*/*.wandb")
        if (folder / UPLOAD_LOCK).exists() or not any(logs):
            return None
    # a line each: with a login before it the command would be cut at the edge of most terminals
    lines = [] if may_have_login() else [typed_wandb("login")]
    lines.append(typed_wandb("sync", folder, "/offline-run-*"))
    if not options.offline:
        lines.append(f"or make sync RUN={shlex.quote(from_here(directory))}")
    return "\n  ".join(lines)


@dataclass
class _State:
    """The state of a log, as far as its records tell."""

    path: Path | None = None
    end: int = 0
    """Bytes of complete records before the end of the run, if that is recorded."""
    records: int = 0
    """Number of W&B's records among those."""
    seqs: dict[str, int] = field(default_factory=dict)
    """The seq of the last row from each journal."""
    step: int = 0
    """`_step` of the last row."""
    start: float = 0.0
    """When the run began, in epoch seconds."""
    exit_code: int | None = None


def _read_state(run: RunInfo) -> _State:
    state = _State(path=_path(run))
    if state.path is None:
        return state
    last_rows: dict[str, bytes] = {}
    for stored in read_log(state.path):
        if is_row(stored.data):  # nearly all are: only the last ones are looked into
            found = EVENT_CELL.search(stored.data)  # nothing else is looked into, for most of a log is rows
            last_rows[journal_of_event(found[1].decode()) if found else JOURNAL] = stored.data
        else:
            record = _record(stored.data)
            if record.HasField("exit"):
                state.exit_code = record.exit.exit_code
                # the log goes on here: a further attempt writes over the end of this one
                break
            if record.HasField("run"):
                state.start = record.run.start_time.ToNanoseconds() / 1e9
            elif (seq := alert_seq(record)) is not None:
                state.seqs[ALERTS] = seq
        state.end = stored.end
        state.records += 1
    for journal, last in last_rows.items():
        row = row_of(_record(last)) or {}
        state.step = max(state.step, row["_step"])
        state.seqs[journal] = row.get("seq", row["_step"])
    return state


@functools.lru_cache(maxsize=MOST_FIELDS)
def _columns(fields: Fields, has_step: bool, has_seq: bool) -> Columns:
    metrics = _without_columns(fields, shown_names(fields))
    steps = ("_step", "_timestamp", "_runtime", *["global_step"] * has_step, *["seq"] * has_seq)
    return Columns([*metrics, *steps], {"event": fields.event})


def _without_columns(fields: Fields, of_points: Sequence[T]) -> Sequence[T]:
    """Return the items of `of_points`, one per point, whose names are not those of our own columns."""
    shown = shown_names(fields)
    if COLUMNS.isdisjoint(shown):
        return of_points
    return [it for it, name in zip(of_points, shown, strict=True) if name not in COLUMNS]


def _path(run: RunInfo) -> Path | None:
    return next((run.directory / "wandb").glob(f"offline-run-*-{run.run_id}/run-{run.run_id}.wandb"), None)


def _new_path(run: RunInfo, start: float) -> Path:
    """Make, and return, the path where W&B's tools look for a run that was not uploaded while it ran."""
    stamp = datetime.fromtimestamp(start, UTC).strftime("%Y%m%d_%H%M%S")
    folder = run.directory / "wandb" / f"offline-run-{stamp}-{run.run_id}"
    (folder / "files").mkdir(parents=True, exist_ok=True)
    return folder / f"run-{run.run_id}.wandb"


def _is_online() -> bool:
    """Whether W&B is to upload: its mode says so and there is a login; asks no server and no user."""
    from wandb.errors import AuthenticationError
    from wandb.sdk import wandb_setup
    from wandb.sdk.lib import wbauth

    if _mode() not in ("online", "run", "shared"):
        return False
    try:
        login = wbauth.authenticate_session(
            host=wandb_setup.singleton().settings.base_url,
            source="monitoring",
            prompt=False,
            update_session=False,
        )
    except AuthenticationError:  # a key that cannot be one; `wandb sync` reports it
        return False
    return login is not None


def _mode() -> str:
    """W&B's mode: WANDB_MODE, else what `wandb offline` or `wandb online` left in its settings."""
    from wandb.sdk import wandb_setup

    return str(wandb_setup.singleton().settings.mode)


def _version() -> str:
    import wandb

    return str(wandb.__version__)


def _record(data: bytes = b"") -> Any:
    """Return one of W&B's records from its encoded form; an empty one from nothing."""
    record = _record_type()()
    if data:
        record.ParseFromString(data)
    return record


@functools.cache
def _record_type() -> Any:
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2.Record
