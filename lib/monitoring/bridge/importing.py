"""Runs from elsewhere: a store that some tracker has written becomes a run directory, every value once."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from monitoring.bridge.attempt import ProgramAttempt
from monitoring.bridge.flat import options
from monitoring.bridge.recorder import Followed, Recorder
from monitoring.bridge.source import Database, MetricSource, files_below
from monitoring.bridge.sources import richness
from monitoring.bridge.sources.csv import CsvSource
from monitoring.bridge.sources.jsonl import JsonLinesSource
from monitoring.bridge.sources.mlflow import MlflowSource
from monitoring.bridge.sources.tensorboard import CURVES, EVENT_FILE, TensorboardSource
from monitoring.bridge.sources.trackio import TrackioSource
from monitoring.bridge.sources.wandb import WandbSource
from monitoring.counts import counted
from monitoring.errors import RunDirectoryError, UserError
from monitoring.journal.end_status import COMPLETE
from monitoring.journal.files import JOURNAL
from monitoring.journal.journal import say
from monitoring.journal.run_json import read_run_json
from monitoring.run import Run

# Values that wait to be written at a time.
BATCH = 1000


class NothingToImportError(UserError):
    """A path holds no run that could be imported, or several."""


def sources_at(path: Path) -> list[MetricSource]:
    """Return the stores at a path, a file or a folder with all below it. NothingToImportError without any."""
    if not path.exists():
        raise NothingToImportError(f"{path} does not exist", hint="name a file or a folder of a tracker")
    files = files_below(path, "") if path.is_dir() else iter([path])
    found = [source for file in files for source in _of_file(file)]
    if not found:
        raise NothingToImportError(
            f"{path} holds nothing that is known",
            hint="W&B's .wandb, TensorBoard's event files, databases of Trackio and MLflow, .csv, .jsonl",
        )
    runs = {(source.kind, source.path) for source in found if source.kind != "tensorboard"}
    runs |= {("tensorboard", folder) for folder in _runs_of_tensorboard(found)}
    for kind in dict.fromkeys(source.kind for source in found):
        if len(named := sorted(str(place) for of, place in runs if of == kind)) > 1:
            raise NothingToImportError(
                f"{path} holds {len(named)} runs of {kind}", hint=f"name one: {named[0]}"
            )
    return sorted(found, key=lambda source: -richness(source.kind))


def place_for(path: Path, results: Path) -> Path:
    """Return RESULTS/NAME for a source, with the name of its folder in front where that is another source's.

    NothingToImportError where it is this source's.
    """
    source = path.resolve()
    names = (source.stem, f"{source.parent.name}_{source.stem}")
    numbered = (f"{names[1]}_{number}" for number in itertools.count(2))
    for directory in (results / name for name in itertools.chain(names, numbered)):
        if not (directory / JOURNAL).exists():
            return directory
        if _imported_from(directory) == source:
            raise NothingToImportError(
                f"{path} was imported before, into {directory}", hint="remove that, or give --name"
            )
    raise AssertionError


def _imported_from(directory: Path) -> Path | None:
    """Return the source that a run was imported from; None for others."""
    with contextlib.suppress(RunDirectoryError):
        source = read_run_json(directory)["attempts"][0].get("imported_from")
        return Path(source).resolve() if isinstance(source, str) else None
    return None


def import_run(path: Path, directory: Path, *, project: str, agent: bool = True) -> int:
    """Record what the stores at a path hold as a run of its own, and return how many records that are.

    run.json names the source; a directory that has a run is refused.
    """
    sources = sources_at(path.absolute())  # databases are opened by URI, which has no relative paths
    if (directory / JOURNAL).exists():
        raise NothingToImportError(f"{directory} has a run already", hint="remove it, or give another name")
    run = Run(
        directory,
        name=directory.name,
        project=project,
        config={},
        agent=agent,
        identity={"imported_from": str(path.absolute())},
    )
    recorder = Recorder(run, {})
    attempt = ProgramAttempt(run, directory / JOURNAL, program=None, num_steps=None)
    configs: dict[int, dict[str, object]] = {}
    with run:
        attempt.start()
        for number, source in enumerate(sources):
            try:
                followed = recorder.sources.setdefault(number, Followed(number, source.kind))
                if config := _take_all(recorder, source, followed):
                    configs[richness(source.kind)] = config
            except (OSError, ValueError, TypeError) as error:
                recorder.record(time.time(), all_of_it=True)
                where = f"{source.path} cannot be read after {counted(recorder.count, 'record')}: {error}"
                raise NothingToImportError(where, hint=f"{directory} has what could be read") from error
            cut_off = source.cut_off(recorder.sources[number].read_to)
            for note in filter(None, (source.left_out, cut_off)):
                say(f"note: {source.path.name} {note}")
        if configs:
            attempt.configure(time.time(), configs)
        recorder.record(time.time(), all_of_it=True)
        run.finish(COMPLETE, **recorder.done())
    return recorder.count


def _take_all(recorder: Recorder, source: MetricSource, followed: Followed) -> dict[str, object]:
    """Record all that a source has, and return the options that it tells of."""
    now, config = time.time(), dict[str, object]()
    for number, reported in enumerate(source.read(0), 1):
        if reported.event == "config":
            config |= options(reported.values)
            continue
        recorder.take(followed, reported, now)
        if number % BATCH == 0:
            recorder.record(time.time(), decided=True)
    return config


def _runs_of_tensorboard(found: Sequence[MetricSource]) -> set[Path]:
    """Return the folders of runs: a folder below one of them has more curves of the same run."""
    folders = {source.path.parent for source in found if source.kind == "tensorboard"}
    own = {folder.parent if folder.name in CURVES else folder for folder in folders}
    return {folder for folder in own if own.isdisjoint(folder.parents)}


def _of_file(path: Path) -> Iterator[Any]:
    if path.suffix == ".wandb":
        yield WandbSource(path)
    elif EVENT_FILE in path.name:
        yield TensorboardSource(path)
    elif path.suffix == ".csv":
        yield CsvSource(path, is_whole=True)
    elif path.suffix in (".jsonl", ".ndjson"):
        yield JsonLinesSource(path, is_whole=True)
    elif path.suffix in (".db", ".sqlite"):
        tables = _columns(path)
        if {"key", "value", "is_nan"} <= tables:
            yield MlflowSource(path)
        elif {"metrics", "step"} <= tables:
            yield TrackioSource(path)


def _columns(path: Path) -> set[str]:
    """Return the columns of a database's table `metrics`; none of what is no such database."""
    try:
        return {row[1] for row in Database(path.absolute()).rows("PRAGMA table_info(metrics)")}
    except ValueError:
        return set()
