"""Losses by step that trackers have stored of a program, in the order in which they were written.

Read by TensorBoard's own reader and by SQLite; W&B's log by ours, for its own package reads it in no Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from monitoring.bridge.sources.wandb import WandbSource

Losses: TypeAlias = list[tuple[int, float]]

LINE = re.compile(r"^(?:.*\x18)?iter (\d+): loss (\S+), time .*$", re.MULTILINE)


def printed(log: Path) -> Losses:
    """Return the whole lines that are reports; one that was cut off ends in a character of its own."""
    found = LINE.finditer(log.read_text())
    return [(int(line[1]), float(line[2])) for line in found if not line[0].endswith("\x18")]


def of_event_files(files: Sequence[Path], tag: str) -> Losses:
    """Return what TensorBoard's reader finds in files, in the order in which their writers ended."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for file in sorted(files, key=_changed) for event in EventFileLoader(str(file)).Load()]
    return [
        (event.step, value.tensor.float_val[0])
        for event in events
        for value in event.summary.value
        if value.tag == tag
    ]


def of_trackio(stores: Path) -> Losses:
    (database,) = Path(os.environ.get("TRACKIO_DIR", stores / "trackio")).glob("*.db")
    rows = _rows(database, "SELECT step, metrics FROM metrics ORDER BY id")
    return [(step, json.loads(text)["train/loss"]) for step, text in rows]


def of_mlflow(stores: Path) -> Losses:
    return _rows(stores / "mlflow.db", "SELECT step, value FROM metrics WHERE key = 'loss' ORDER BY rowid")


def of_wandb(stores: Path) -> Losses:
    logs = sorted(stores.glob("wandb/offline-run-*/*.wandb"), key=_changed)
    return [
        (row.step or 0, float(str(row.values["train/loss"])))
        for log in logs
        for row in WandbSource(log).read(0)
        if "train/loss" in row.values
    ]


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _rows(database: Path, query: str) -> list[tuple]:  # type: ignore[type-arg]
    with contextlib.closing(sqlite3.connect(database)) as found:
        return found.execute(query).fetchall()
