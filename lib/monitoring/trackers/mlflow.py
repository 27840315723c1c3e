"""MLflow: a run's points by MLflow's own client, in a local SQLite database or on a tracking server.

A delivery is a few calls of `log_batch`. MLflow keeps a point once by run, name, step, time and value, so a
delivery made twice counts once, and the last call sets the tags that say how far it came: after a SIGKILL a
delivery is repeated. With each record comes a point `seq/EVENT`, its seq, by which it is read back.
"""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from monitoring.follower import RunInfo
from monitoring.host.file_locks import try_lock
from monitoring.host.name import in_file_names
from monitoring.journal.end_status import COMPLETE, FAILED, INTERRUPTED
from monitoring.journal.files import ALL_SAMPLES, JOURNAL, SAMPLES, kind_and_host
from monitoring.journal.records import MOST_FIELDS, Fields, Record, alike, kind_of, seq_of, time_of
from monitoring.trackers import (
    TrackerPoint,
    event_of,
    journal_metric,
    journal_of,
    require_package,
    shown_names,
    step_of,
)
from monitoring.trackers._pictures import TrackerPicture, pictures_of, warn

JOURNALS = (JOURNAL, *ALL_SAMPLES)

STATUSES = {COMPLETE: "FINISHED", INTERRUPTED: "KILLED", FAILED: "FAILED"}

# Prefixes of our tags, and of points that say which record the points of their time belong to.
OURS = "monitoring."
SEQ = "seq/"

# Limits of one `log_batch`, and of names and values.
METRICS_A_CALL = 1000
PARAMS_A_CALL = 100
LONGEST_NAME = 250
LONGEST_VALUE = 6000

# Points of one step are told apart by the milliseconds of their times: so many seqs, of each kind of journal
# its own. The names of other hosts' points differ.
KINDS = ("", *SAMPLES)
SEQS_A_SECOND = 1000 // len(KINDS)

# Signs that a name may not have in MLflow, or that stand for such.
NOT_IN_NAMES = re.compile(r"[^/\w.\- ]")

# MLflow's codes for a request that it will never take; its own state has other codes. A
# proxy before its server refuses what is too large, and says so without one.
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")
TOO_LARGE = "failed with error code 413 "

# MLflow's own settings, where the user has set none: the agent sends nothing else, waits for a server that is
# down no longer than other trackers do, and has its own log.
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}

# Folder beside mlflow.db, named as by MLflow's server; of an experiment all runs are in it.
ARTIFACTS = "mlartifacts"

# Folder of the artifacts that MLflow's pages show as pictures, and the tag of a run that has some.
IMAGES = "images"
HAS_IMAGES = "mlflow.loggedImages"

# Seconds that another agent may take to make the tables of a database.
LONGEST_MAKING = 60.0

INSTALL = "mlflow-skinny sqlalchemy alembic"


@dataclass(frozen=True)
class Options:
    """Where MLflow keeps the run; experiment and names come from the run itself."""

    tracking_uri: str
    """Empty is the variable MLFLOW_TRACKING_URI, or else the database mlflow.db in the folder of the runs."""


def check(options: Options) -> None:
    """Raise MissingPackage if MLflow is not installed."""
    require_package("mlflow", install=INSTALL)


def open_follower(run: RunInfo, options: Options) -> MlflowFollower:
    """Deliver to the run's experiment, the project; MissingPackage if MLflow is not installed."""
    return MlflowFollower(run, options)


class MlflowFollower:
    """Logs each delivery, and after it how far it came."""

    def __init__(self, run: RunInfo, options: Options) -> None:
        self._run = run
        self._options = options
        self._client = _client(run, options)
        found = _find(self._client, run)
        self._run_id: str | None = found.info.run_id if found else None
        self._status: str | None = found.info.status if found else None
        tags = found.data.tags if found else {}
        of_journal = f"{OURS}seq."
        self._seqs = {
            name.removeprefix(of_journal): int(value)
            for name, value in tags.items()
            if name.startswith(of_journal)
        }
        self._step = int(tags.get(f"{OURS}step", 0))
        self._time = 0.0
        self._has_begun = False

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the seq in the run's tag."""
        return self._seqs.get(journal, 0)

    def deliver(self, records: Sequence[Record]) -> None:
        """Log the points of the records, those without a step at the last step before them.

        ValueError for what MLflow does not take.
        """
        from mlflow.exceptions import MlflowException

        pictures: list[tuple[TrackerPicture, str]] = []
        metrics, seqs, step = self._metrics(records, pictures)
        try:
            run_id = self._begin(records[0])
            failures = [failed for it in pictures if (failed := self._failure_to_add(run_id, *it))]
            first = range(0, len(metrics), METRICS_A_CALL)
            # the tags go with the last call: a kill before it repeats all, which MLflow counts once
            *others, last = [metrics[at : at + METRICS_A_CALL] for at in first] or [[]]
            for part in others:
                self._client.log_batch(run_id, metrics=part)
            tags = {f"seq.{journal}": seq for journal, seq in seqs.items()} | {"step": step}
            self._client.log_batch(run_id, metrics=last, tags=_tags(tags))
        except MlflowException as error:
            if error.error_code in REFUSALS or TOO_LARGE in str(error):
                raise ValueError(str(error)) from error
            raise
        for failure in failures:  # MLflow itself is there, as its points are
            warn(failure)
        self._seqs, self._step, self._time = seqs, step, time_of(records[-1])

    def flush(self) -> None:
        """Do nothing: a delivery returns when MLflow has it."""

    def close(self, status: str | None) -> None:
        """Say how the run ended."""
        ended = STATUSES.get(status, "FAILED") if status is not None else None
        if self._run_id is not None and ended not in (None, self._status):
            end = round(self._time * 1000) or None
            self._client.set_terminated(self._run_id, status=ended, end_time=end)
            self._status = ended

    def _metrics(
        self, records: Sequence[Record], pictures: list[tuple[TrackerPicture, str]]
    ) -> tuple[list[Any], dict[str, int], int]:
        """Return the points as MLflow's, the journals' last seqs and the last step; adds to the pictures."""
        from mlflow.entities import Metric

        metrics: list[Any] = []
        seqs, step = dict(self._seqs), self._step
        for fields, group in alike(records):
            journal, names = journal_of(group[0]), _names(fields)
            for record in group:
                seqs[journal], at = seq_of(record), step_of(record)
                if journal == JOURNAL:
                    step = at = step if at is None else at
                values = fields.values_in(record)
                time = _timestamp(record)
                shown = pictures_of(record, fields, self._run.directory)
                pictures += [(it, _artifact(it, record, step=at or 0, time=time)) for it in shown]
                if values:
                    pairs = zip(names, [*values, seqs[journal]], strict=True)
                    metrics += [Metric(name, float(value), time, at or 0) for name, value in pairs]
        return metrics, seqs, step

    def _failure_to_add(self, run_id: str, picture: TrackerPicture, name: str) -> str:
        """Log a picture as an artifact, which may be kept elsewhere than points; what went wrong."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"{name}.png")
                path.write_bytes(picture.content)
                files = [path, *_compressed(path)]
                for file in files:
                    self._client.log_artifact(run_id, str(file), IMAGES)
            self._client.set_tag(run_id, HAS_IMAGES, True)
        except Exception as error:  # noqa: BLE001 - many kinds of artifact stores are called here
            return f"picture {picture.name!r} is not in MLflow: {type(error).__name__}: {error}"
        return ""

    def _begin(self, first: Record) -> str:
        """The run on the server, with the configuration of this attempt; MLflow changes no parameter."""
        if self._run_id is None:
            created = _create(self._client, self._run, self._options, start=time_of(first))
            self._run_id, self._status = created.info.run_id, created.info.status
        if not self._has_begun:
            held = self._client.get_run(self._run_id).data.params
            config = {_name(name): _text(value) for name, value in self._run.config.items()}
            new = [(name, value) for name, value in config.items() if name not in held]
            for at in range(0, len(new), PARAMS_A_CALL):
                self._client.log_batch(self._run_id, params=_params(new[at : at + PARAMS_A_CALL]))
            changed = [(name, value) for name, value in config.items() if held.get(name, value) != value]
            for name, value in changed:
                self._client.set_tag(self._run_id, f"{OURS}changed.{name}"[:LONGEST_NAME], value)
            if self._status != "RUNNING":
                self._client.update_run(self._run_id, status="RUNNING")
                self._status = "RUNNING"
            self._has_begun = True
        return self._run_id


def read_back(run: RunInfo, options: Options) -> list[TrackerPoint]:
    """Return the run's points in MLflow, in the order of the records' seqs."""
    client = _client(run, options)
    found = _find(client, run)
    if found is None:
        return []
    names: Iterable[str] = found.data.metrics
    history = {name: client.get_metric_history(found.info.run_id, name) for name in names}
    records = {}
    for name in [name for name in history if name.startswith(SEQ)]:
        event = _journal_name(name.removeprefix(SEQ))
        for point in history.pop(name):
            records[kind_and_host(event)[1], point.step, point.timestamp] = int(point.value), event
    hosts = {host for host, _, _ in records}
    held = []
    for name, points in history.items():
        shown = _journal_name(name)
        host = host if (host := shown.partition("/")[0]) in hosts else ""
        for point in points:
            seq, event = records[host, point.step, point.timestamp]
            step = None if event == "end" else point.step
            held.append(TrackerPoint(seq, event, step, journal_metric(shown, event), point.value))
    return sorted(held, key=lambda point: point.seq)


def _tracking_uri(run: RunInfo, options: Options) -> str:
    return _chosen(options) or f"sqlite:///{run.directory.parent / 'mlflow.db'}"


def _artifacts(run: RunInfo, options: Options) -> str | None:
    """Return where a new experiment keeps pictures: beside our own database, else where MLflow says."""
    return None if _chosen(options) else (run.directory.parent / ARTIFACTS).absolute().as_uri()


def _chosen(options: Options) -> str:
    return options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")


def _client(run: RunInfo, options: Options) -> Any:
    require_package("mlflow", install=INSTALL)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    uri = _tracking_uri(run, options)
    with _alone(uri):
        return MlflowClient(uri)


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Have the agents of a matrix make the tables of a SQLite database in turn: MLflow would mix them up."""
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    if path in (uri, "", ":memory:"):
        yield
        return
    with ExitStack() as held:
        with suppress(OSError):  # MLflow itself says what is wrong with the folder
            lock = held.enter_context(Path(f"{path}.lock").open("a"))
            try_lock(lock.fileno(), seconds=LONGEST_MAKING)
        yield


def _find(client: Any, run: RunInfo) -> Any | None:
    """Return the run's run in MLflow, None before it has one."""
    experiment = client.get_experiment_by_name(run.project)
    if experiment is None:
        return None
    ours = f"tags.`{OURS}run_id` = '{run.run_id}'"  # a hexadecimal number: nothing needs quoting
    return next(iter(client.search_runs([experiment.experiment_id], ours, max_results=1)), None)


def _create(client: Any, run: RunInfo, options: Options, *, start: float) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(run.project, artifact_location=_artifacts(run, options))
    except MlflowException as error:  # there is one, or another run's agent was quicker
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    experiment = client.get_experiment_by_name(run.project).experiment_id
    tags = {f"{OURS}run_id": run.run_id} | ({f"{OURS}group": run.group} if run.group else {})
    return client.create_run(experiment, start_time=round(start * 1000), tags=tags, run_name=run.name)


def _timestamp(record: Record) -> int:
    """The time of a record's points in milliseconds: its second, and a place in it that no other one has."""
    kind = kind_of(event_of(record))
    place = KINDS.index(kind if kind in SAMPLES else "")
    return int(time_of(record)) * 1000 + len(KINDS) * (seq_of(record) % SEQS_A_SECOND) + place


def _artifact(picture: TrackerPicture, record: Record, *, step: int, time: int) -> str:
    """Return the file name, without its ending, that `MlflowClient.log_image` gives a picture.

    But always the same one: what is delivered again replaces it.
    """
    key = "~".join(map(in_file_names, picture.name.split("/")))
    own = uuid.uuid5(uuid.NAMESPACE_OID, f"{seq_of(record)}:{event_of(record)}:{picture.name}")
    return f"{key}+step+{step}+timestamp+{time}+{own}"


def _compressed(path: Path) -> list[Path]:
    """Return the smaller picture that MLflow's pages show beside others; none without Pillow."""
    from mlflow.tracking.multimedia import Image, compress_image_size

    small = path.with_name(f"{path.stem}+compressed.webp")
    try:
        compress_image_size(Image(str(path)).to_pil()).save(small)
    except ImportError:
        return []
    return [small]


@functools.lru_cache(maxsize=MOST_FIELDS)
def _names(fields: Fields) -> tuple[str, ...]:
    """Return the names of the points in MLflow, and of the seq after them."""
    return (*(_name(name) for name in shown_names(fields)), f"{SEQ}{_name(str(fields.event))}")


def _name(name: str) -> str:
    """A name that MLflow takes: `acc@1` is `acc:40:1`, and one that is too long ends with its digest."""
    name = NOT_IN_NAMES.sub(_encoded, name)
    if name.startswith((SEQ, "/", "..")) or posixpath.normpath(name) != name or name in ("", "."):
        name = re.sub(r"[/.]", _encoded, name) or ":0:"
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _encoded(found: re.Match[str]) -> str:
    return f":{ord(found[0]):x}:"


def _journal_name(name: str) -> str:
    return re.sub(":([0-9a-f]+):", lambda found: chr(int(found[1], 16)), name)


def _text(value: object) -> str:
    return (value if isinstance(value, str) else orjson.dumps(value).decode())[:LONGEST_VALUE]


def _tags(values: dict[str, int]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(f"{OURS}{name}", str(value)) for name, value in values.items()]


def _params(values: Sequence[tuple[str, str]]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(name, value) for name, value in values]
