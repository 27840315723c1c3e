"""A run as it stood at a moment is what its files, cut there, are read as."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring.journal.alerts import Alerts
from monitoring.journal.records import Record
from monitoring.journal.series import table
from monitoring.web.charts import Charts
from monitoring.web.details import RunDetails
from monitoring.web.past import is_read_then, row_then
from monitoring.web.rows import RunRow, alert_facts, read_row

BEGAN = 1.7e9

# Attempts: when each begins, its first and last step, and the `seq` that it does again.
ATTEMPTS = ((0, 1, 100, None), (10_000, 81, 160, (84, 103)), (20_000, 1, 50, (2, 186)))


def records() -> list[Record]:
    """Three attempts, a step a second: the second goes on from step 80, the third begins anew and ends."""
    found: list[Record] = []
    for number, (began, first, last, again) in enumerate(ATTEMPTS, 1):
        common = {"attempt": number}
        start = {"event": "start", "num_steps": 200, "config": {"LR": number / 10}}
        if again:
            start["supersedes"] = dict(zip(("first_seq", "last_seq"), again, strict=True))
            start["resumed_from"] = {"checkpoint": "a.pt", "global_step": first - 1} if first > 1 else None
        written = [start]
        for step in range(first, last + 1):
            written.append({"event": "step", "global_step": step, "train_loss": number + 1 / step})
            if step % 40 == 0:
                written.append({"event": "eval", "global_step": step, "val_loss": number + 2 / step})
        if number == len(ATTEMPTS):
            written.append({"event": "end", "global_step": last, "status": "complete"})
        for second, record in enumerate(written):
            seq = len(found) + 1
            found.append({**record, **common, "time": BEGAN + began + second, "seq": seq})
    return found


ALERTS = (
    {"rule": "spike", "severity": "error", "state": "firing", "time": BEGAN + 30.0, "message": "m"},
    {"rule": "spike", "severity": "error", "state": "resolved", "time": BEGAN + 60.0, "message": "over"},
)
MOMENTS = (*(began + after for began in (0, 10_000, 20_000) for after in (0.5, 33.5, 70.5, 900.5)), -1.0, 1e6)


def written(directory: Path, kept: Sequence[Record], until: float) -> Path:
    directory.mkdir()
    for name, lines in (("metrics.jsonl", kept), ("alerts.jsonl", ALERTS)):
        then = [one for one in lines if float(str(one["time"])) <= until]
        (directory / name).write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in then))
    return directory


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are held as they are, so that a hundred records have blocks."""
    monkeypatch.setattr(table, "MOST_CELLS", 0)
    monkeypatch.setattr(table, "FEWEST_ROWS", 32)


def drawn(row: RunRow, x: str, moment: float | None = None, **asked: Any) -> Any:
    """The records of each metric that has any, and of a few buckets what they come to."""
    wanted = [{"metric": name, "key": 0} for name in ("train_loss", "val_loss")]
    edges: Any = {"lo": None, "hi": None, **asked}
    found = Charts().windows(row, wanted, x=x, moment=moment, buckets=5000, **edges)["windows"]
    few = Charts().windows(row, wanted, x=x, moment=moment, buckets=10, **edges)["windows"]
    ends = [
        (min(one.get("min", one["last"])), max(one.get("max", one["last"])), one["x"][-1], one["last"][-1])
        for one in few
        if one["x"]
    ]
    return [one for one in found if one["x"]], ends


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("after", MOMENTS)
def test_a_moment_shows_what_was_read_then(tmp_path: Path, after: float) -> None:
    everything, moment = records(), BEGAN + after
    whole = read_row("run", written(tmp_path / "whole", everything, math.inf))
    cut = written(tmp_path / "cut", everything, moment)
    then = row_then(whole, moment)
    assert is_read_then(whole, moment) == (then is not None and then is not whole)
    read = read_row("run", cut, now=moment)
    if after < 0:
        assert then is None
        assert read.facts["step"] is None
        return
    assert then is not None
    gone = {"id", "name"}
    if read.facts["status"] == "silent":  # whoever saw it then did not know that it had died
        assert then.facts["status"] == "killed"
        gone.add("status")
    for name in sorted({*read.facts} - gone):
        assert then.facts[name] == read.facts[name], name
    assert (then.metrics, then.best, then.options) == (read.metrics, read.best, read.options)
    for x, edges in (("step", {}), ("time", {}), ("step", {"lo": 20.0, "hi": 70.0})):
        assert drawn(whole, x, moment, **edges) == drawn(read, x, **edges)
    details, other = RunDetails().of(whole, moment), RunDetails().of(read)
    for name in ("starts", "ends", "alerts", "diagnoses", "options"):
        assert details[name] == other[name], name
    assert details["control"]["why_not"] == "the page shows an earlier moment"


def test_gpu_that_answers_again_fires_no_longer(tmp_path: Path) -> None:
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        for subject in ("GPU-1", "GPU-2"):
            alerts.add("gpu_lost", "error", f"{subject} is lost", subject=subject)
        alerts.add("gpu_back", "info", "GPU-2 answers again", subject="GPU-2")
    assert alert_facts(tmp_path) == {"errors": 1, "warnings": 0, "alert": "GPU-1 is lost"}
