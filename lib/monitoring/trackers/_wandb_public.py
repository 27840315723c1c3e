"""W&B through its public interface alone, for releases whose own records this project does not know.

`wandb.init` writes an offline run in RUN/wandb, in the agent's process and the service that it starts, and
`wandb sync` uploads it when the run has ended. Nothing public says which rows such a log holds after a
SIGKILL, and `wandb sync` of two logs of one run puts the rows of the second over those of the first. So each
agent writes the whole run again from its journal, into a new log, and removes the earlier one: the log that a
run ends with has each record once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from monitoring.follower import Follower, RunInfo
from monitoring.journal.end_status import COMPLETE, FAILED, INTERRUPTED
from monitoring.journal.files import ALERTS, JOURNAL
from monitoring.journal.records import Record, alike, fields_of, seq_of, time_of
from monitoring.trackers import (
    event_of,
    journal_of,
    shown_names,
    shown_points,
    shown_texts,
    step_of,
)
from monitoring.trackers._alerts import TrackerAlert, is_alert, tracker_alert
from monitoring.trackers._pictures import TrackerPicture, pictures_of, warn
from monitoring.trackers._wandb_records import (
    ALERT_WAIT_MS,
    LONGEST_ALERT_TITLE,
    LONGEST_NAME,
    NOT_IN_PROJECT,
)
from monitoring.trackers._wandb_upload import UPLOAD_LOG, UploadUnfinished, typed_wandb

# W&B shows exit code 0 as finished and 255 (its own for Ctrl-C) or any other as failed.
EXIT_CODES = {COMPLETE: 0, INTERRUPTED: 255, FAILED: 1}

# The row's own columns, next to the metrics. `seq` is there where it is not `_step`.
COLUMNS = frozenset({"_step", "_timestamp", "_runtime", "event", "global_step", "seq"})

# In RUN/wandb: the run's log there is W&B's own work.
MARK = ".public-interface"

# What a run of ours needs nothing of; a release that does not know one of them goes without all.
SETTINGS = {
    "console": "off",
    "silent": True,
    "disable_git": True,
    "disable_code": True,
    "disable_job_creation": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
}

Row = tuple[dict[str, object], list[TrackerPicture], int]

# W&B's modes that send nothing.
SILENT_MODES = ("disabled", "offline", "dryrun")


def open_public(run: RunInfo, *, entity: str, offline: bool, patience: float) -> Follower:
    """Deliver through wandb.init; `patience` is how many seconds the end of a run waits for its upload."""
    if os.environ.get("WANDB_MODE") == "disabled":
        return Disabled()
    return PublicWandb(run, entity=entity, offline=offline, patience=patience)


def remove_public(run: RunInfo) -> None:
    """Remove the log that W&B itself has written, if there is one: its rows are in the journal."""
    mark = run.directory / "wandb" / MARK
    if mark.exists():
        _remove_logs(run)
        mark.unlink(missing_ok=True)


class PublicWandb:
    """Writes the run anew: it holds nothing when it is opened."""

    def __init__(self, run: RunInfo, *, entity: str, offline: bool, patience: float) -> None:
        self._info = run
        self._entity, self._offline, self._patience = entity, offline, patience
        self._run: Any = None
        self._seqs: dict[str, int] = {}
        self._step = 0
        self._defined: set[str] = set()

    def last_seq(self, journal: str = JOURNAL) -> int:
        """The seq of the journal's last record that this follower was given."""
        return self._seqs.get(journal, 0)

    def deliver(self, records: Sequence[Record]) -> None:
        """Log one row for each record that has points or pictures.

        What a record's content raises is raised before the first row is logged.
        """
        if self._run is None and not any(map(begins_log, records)):
            return
        rows, alerts, seqs, last_step = self._rows(records)
        try:
            if self._run is None:
                self._begin()
            for row, pictures, step in rows:
                self._log(row, pictures, step)
            for alert in alerts:
                self._alert(alert)
        except Exception as error:
            raise RuntimeError(f"W&B's public interface: {type(error).__name__}: {error}") from error
        self._seqs, self._step = seqs, last_step

    def flush(self) -> None:
        """Nothing: what a SIGKILL of this process leaves of the log is replaced by the next one."""

    def close(self, status: str | None) -> None:
        """Finish W&B's run and upload its log; UploadUnfinished if that takes too long."""
        if self._run is None:
            return
        run, self._run = self._run, None
        run.finish(exit_code=EXIT_CODES[INTERRUPTED] if status is None else EXIT_CODES.get(status, 1))
        if status is not None and not self._offline and self._is_online():
            self._upload()

    def _begin(self) -> None:
        import wandb

        folder = self._info.directory / "wandb"
        folder.mkdir(exist_ok=True)
        (folder / MARK).touch()  # before there is a log, which the private interface would take for its own
        _remove_logs(self._info)
        self._run = wandb.init(
            mode="offline",
            dir=self._info.directory,
            id=self._info.run_id,
            entity=self._entity or None,
            project=self._info.project.translate(NOT_IN_PROJECT)[:LONGEST_NAME],
            name=self._info.name[:LONGEST_NAME],
            group=(self._info.group or "")[:LONGEST_NAME] or None,
            config=dict(self._info.config),
            settings=_settings(wandb),
        )
        self._run.define_metric("global_step")
        for name in ("event", "seq"):
            self._run.define_metric(name, hidden=True)

    def _rows(self, records: Sequence[Record]) -> tuple[list[Row], list[TrackerAlert], dict[str, int], int]:
        """Rows, alerts, the journals' last seqs and the last `_step` then, numbered as in wandb.py."""
        rows: list[Row] = []
        alerts: list[TrackerAlert] = []
        seqs, row_step = dict(self._seqs), self._step
        for fields, group in alike(records):
            journal = journal_of(group[0])
            if journal == ALERTS:
                found = [alert for record in group if (alert := tracker_alert(record)) is not None]
                alerts += found
                seqs[ALERTS] = seq_of(group[-1])
                continue
            names = shown_names(fields)
            for record in group:
                row: dict[str, object] = dict(zip(names, fields.values_in(record), strict=True))
                row |= shown_texts(record)
                pictures = pictures_of(record, fields, self._info.directory, taken=COLUMNS)
                seq, step = seq_of(record), step_of(record)
                seqs[journal] = seq
                if not row and not pictures:
                    continue
                row_step = row_step + 1 if journal != JOURNAL else max(seq, row_step + 1)
                row = {name: value for name, value in row.items() if name not in COLUMNS}
                row |= {"event": event_of(record), "_timestamp": time_of(record)}
                if step is not None:
                    row["global_step"] = step
                if row_step != seq:
                    row["seq"] = seq
                rows.append((row, pictures, row_step))
        return rows, alerts, seqs, row_step

    def _log(self, row: dict[str, object], pictures: Sequence[TrackerPicture], step: int) -> None:
        self._define([name for name in (*row, *(it.name for it in pictures)) if name not in COLUMNS])
        with tempfile.TemporaryDirectory() if pictures else contextlib.nullcontext("") as folder:
            for number, picture in enumerate(pictures):
                path = Path(folder) / f"{number}.png"
                path.write_bytes(picture.content)
                if (shown := _image(path)) is not None:
                    row[picture.name] = shown
            self._run.log(row, step=step, commit=True)

    def _define(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._defined:
                self._defined.add(name)
                with contextlib.suppress(Exception):  # W&B refuses some names: drawn over its own step
                    self._run.define_metric(name, step_metric="global_step", step_sync=False)

    def _alert(self, alert: TrackerAlert) -> None:
        own = f" ({self._info.run_id[:8]}-{alert.seq})"
        self._run.alert(
            title=alert.title[: LONGEST_ALERT_TITLE - len(own)] + own,
            text=alert.text + (f" (step {alert.step})" if alert.step is not None else ""),
            level=alert.level.upper(),
            wait_duration=timedelta(milliseconds=ALERT_WAIT_MS),
        )

    def _is_online(self) -> bool:
        """Whether there is a login and W&B's mode does not forbid to send; asks no server and no user."""
        import wandb

        try:
            mode = str(wandb.setup().settings.mode)
        except Exception:  # noqa: BLE001 - another release; its variable is documented
            mode = os.environ.get("WANDB_MODE", "")
        return mode not in SILENT_MODES and may_have_login()

    def _upload(self) -> None:
        for log in sorted((self._info.directory / "wandb").glob(f"offline-run-*-{self._info.run_id}")):
            with open(log.with_name(UPLOAD_LOG), "ab") as output:
                try:
                    code = subprocess.run(
                        [sys.executable, "-m", "wandb", "sync", str(log)],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        env={**os.environ, "WANDB_DIR": str(self._info.directory), "WANDB_MODE": "online"},
                        timeout=self._patience,
                        check=False,
                    ).returncode
                except subprocess.TimeoutExpired:
                    code = None
            if code != 0:
                after = (
                    f"after {self._patience:.0f} s" if code is None else f": wandb sync exited with {code}"
                )
                raise UploadUnfinished(
                    f"{log} is not uploaded {after}; {output.name} may say why",
                    hint=typed_wandb("sync", log),
                )


class Disabled:
    """W&B switched off: takes everything and keeps nothing."""

    def last_seq(self, journal: str = JOURNAL) -> int:
        return 0

    def deliver(self, records: Sequence[Record]) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self, status: str | None) -> None:
        pass


def begins_log(record: Record) -> bool:
    """Whether a record holds anything to open a log for."""
    if is_alert(record):
        return tracker_alert(record) is not None
    return event_of(record) == "start" or bool(shown_points(record)) or fields_of(record).has_pictures


def may_have_login() -> bool:
    """Whether there is an API key, or a file that may hold one."""
    if any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")):
        return True
    files = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    return any(Path(file).expanduser().exists() for file in files if file)


def _remove_logs(run: RunInfo) -> None:
    for log in (run.directory / "wandb").glob(f"offline-run-*-{run.run_id}"):
        shutil.rmtree(log, ignore_errors=True)  # W&B's service of a killed agent may still write into it


def _settings(wandb: Any) -> Any:
    try:
        return wandb.Settings(**SETTINGS)
    except Exception:  # noqa: BLE001 - settings of another release are judged by its own code
        return wandb.Settings(console="off")


def _image(path: Path) -> Any:
    """W&B's own picture, None where it can make none (it needs Pillow)."""
    import wandb

    try:
        return wandb.Image(str(path))
    except Exception as error:  # noqa: BLE001 - the record's points are delivered all the same
        warn(f"W&B shows no picture: {error}")
        return None
