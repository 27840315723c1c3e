"""One run directory, in every state a run can leave it in."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kharness.report import reading
from kharness.report.metrics import metric_named
from kharness.report.runs import RunData, load_run
from kharness.runs.status import read_status
from monitoring.journal.series import RunSeries

from .conftest import Make

ROOT = Path(__file__).resolve().parents[3]


def step(number: int, loss: float | None, attempt: int = 1) -> dict[str, Any]:
    return {"event": "step", "global_step": number, "train_loss": loss, "attempt": attempt}


def test_series_of_a_complete_run(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, make.training([2.0, 1.0], [0.25, 0.5], 0.75))
    make.status(tmp_path, "complete", None)
    run = load_run(tmp_path)
    loss, accuracy = run.metric("step", "train_loss"), run.validation("val_accuracy")
    assert (list(loss.steps), list(loss.values)) == ([1, 2], [2.0, 1.0])
    assert (list(accuracy.steps), list(accuracy.values)) == ([1, 2], [0.25, 0.5])
    assert (run.status, run.reason, run.attempts, run.last_step, run.num_steps) == ("complete", "", 1, 2, 2)
    assert run.at_end("test_accuracy") == 0.75


def test_a_training_loss_is_that_of_the_last_tenth_of_the_steps(tmp_path: Path, make: Make) -> None:
    """Whether or not the model has epochs; their mean where no step was recorded."""
    losses, metric = [10.0 - 0.1 * i for i in range(25)], metric_named("train_loss")
    records = make.training(losses, [0.25], 0.75)
    epoch = {"event": "epoch", "global_step": 25, "train_loss": 9.0}
    make.journal(tmp_path, [*records[:-1], epoch, records[-1]])
    make.status(tmp_path, "complete", None)
    run = load_run(tmp_path)
    assert metric.read(run) == pytest.approx(sum(losses[-3:]) / 3)
    without = {key: series for key, series in run.series.items() if key != ("step", "train_loss")}
    assert metric.read(replace(run, series=without)) == 9.0


def test_steps_done_again_replace_those_of_the_attempt_before(tmp_path: Path, make: Make) -> None:
    """Attempt 2 goes on behind step 2: steps 3 and 4 of attempt 1 made no part of the model."""
    first = [step(n, 10.0 + n) for n in (1, 2, 3, 4)]
    second = [{**start(2, first=3, last=4), "num_steps": 3}, step(3, 23.0, 2)]
    make.journal(tmp_path, [*first, *second])
    run = load_run(tmp_path)
    loss = run.metric("step", "train_loss")
    assert (list(loss.steps), list(loss.values)) == ([1, 2, 3], [11.0, 12.0, 23.0])
    assert run.attempts == 2


def test_what_a_start_record_supersedes_is_dropped_and_nothing_else(tmp_path: Path, make: Make) -> None:
    """Attempt 2 goes on behind step 3 and logs every second step only; attempt 3 does as well."""
    first = [
        {"event": "start", "resumed_from": None, "supersedes": None},
        *(step(n, 10.0 + n) for n in (1, 2, 3)),
    ]
    lost = [{**step(4, None), "nonfinite": ["train_loss"]}, {"event": "end", "status": "interrupted"}]
    second = [start(2, first=5, last=6), step(4, 24.0, 2), step(6, 26.0, 2)]
    third = [
        start(3, first=8, last=9),
        step(5, 35.0, 3),
        {"event": "end", "status": "complete", "attempt": 3},
    ]
    make.journal(tmp_path, [*first, *lost, *second, *third])
    run = load_run(tmp_path)
    loss = run.metric("step", "train_loss")
    assert (list(loss.steps), list(loss.values)) == ([1, 2, 3, 5], [11.0, 12.0, 13.0, 35.0])
    assert (run.nonfinite_records, run.attempts, run.status) == (0, 3, "complete")


def test_steps_of_every_kind_between_those_that_are_alike(tmp_path: Path, make: Make) -> None:
    """Steps are read many at a time: a null, a text, a flag or a field less leaves the others as they are."""
    for odd in (
        {"train_loss": None},
        {"train_loss": "2.0"},
        {"train_loss": True},
        {"train_loss": 7},
        {"cost": 0.5},
        {"global_step": None},
        {"global_step": True},
        {"train_loss": None, "nonfinite": ["train_loss"]},
    ):
        records: list[dict[str, Any]] = [{**step(n, n / 4), "sec_per_step": 0.5} for n in range(1, 400)]
        records[200] = {**step(201, 0.25), **odd}
        make.journal(tmp_path, records)
        counted = [one for one in records if odd.get("global_step", 1) == 1 or one is not records[200]]
        loss = [
            (one["global_step"], float(one["train_loss"]))
            for one in counted
            if isinstance(one["train_loss"], (int, float))
        ]
        run = load_run(tmp_path)
        read = run.metric("step", "train_loss")
        assert list(zip(read.steps, read.values, strict=True)) == loss, odd
        assert list(run.metric("step", "sec_per_step").steps) == [n for n in range(1, 400) if n != 201]
        assert list(run.metric("step", "cost").steps) == [201] * ("cost" in odd)
        assert run.nonfinite_records == ("nonfinite" in odd)


def test_what_was_recorded_before_beginning_anew_is_dropped(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, [*make.training([2.0, 1.0], [0.25, 0.5], 0.75), start(2, first=1, last=7)])
    run = load_run(tmp_path)
    assert (run.last_step, run.status, run.at_end("test_accuracy")) == (None, "silent", None)


def start(attempt: int, *, first: int, last: int) -> dict[str, Any]:
    superseded = {"first_seq": first, "last_seq": last}
    return {"event": "start", "attempt": attempt, "resumed_from": {"attempt": 1}, "supersedes": superseded}


def test_a_first_attempt_that_ended_does_not_end_the_second(tmp_path: Path, make: Make) -> None:
    ended = {"event": "end", "status": "complete", "test_accuracy": 0.5}
    make.journal(tmp_path, [step(1, 1.0), ended, {"event": "start", "attempt": 2}])
    run = load_run(tmp_path)
    assert (run.status, run.reason) == ("silent", "")
    assert run.at_end("test_accuracy") is None


def test_validation_comes_from_epochs_without_eval_records(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, [{"event": "epoch", "global_step": 5, "epoch": 1, "val_accuracy": 0.5}])
    assert list(load_run(tmp_path).validation("val_accuracy").values) == [0.5]


def test_values_that_are_not_finite_are_counted_and_no_points(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, make.training([2.0, None, 1.0], [0.5]))
    run = load_run(tmp_path)
    assert list(run.metric("step", "train_loss").steps) == [1, 3]
    assert run.nonfinite_records == 1


def test_a_run_without_directory_is_missing(tmp_path: Path) -> None:
    run = load_run(tmp_path / "nothing")
    assert (run.status, run.reason, run.last_step) == ("missing", "it has no directory", None)


def test_an_empty_directory_is_pending(tmp_path: Path) -> None:
    run = load_run(tmp_path)
    assert (run.status, run.last_step, run.num_steps) == ("pending", None, None)


def test_a_torn_and_a_broken_line_leave_the_others(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, [step(1, 2.0), step(2, 1.0)])
    journal = tmp_path / "metrics.jsonl"
    first, second = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + b"\x00\x00garbage\n" + second + b'{"event": "step", "glob')
    assert list(load_run(tmp_path).metric("step", "train_loss").values) == [2.0, 1.0]


def test_a_broken_status_file_is_reported(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, make.training([1.0], [0.5], 0.5)[:-1])
    (tmp_path / "status.json").write_text('{"status": "comp')
    run = load_run(tmp_path)
    assert run.status == "unreadable"
    assert run.reason.startswith("status.json: ")
    assert not run.complete


def test_a_broken_status_file_takes_nothing_from_a_complete_run(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path, make.training([1.0], [0.5], 0.5))
    (tmp_path / "status.json").write_text('{"status": "comp')
    assert (load_run(tmp_path).status, load_run(tmp_path).reason) == ("complete", "")


def test_an_attempt_during_which_the_clock_was_set_back_took_nobody_knows_how_long(tmp_path: Path) -> None:
    attempt = {
        "started": 5000.0,
        "ended": 1410.0,
        "exit_code": 0,
        "signal": None,
        "cause": None,
        "reason": None,
    }
    (tmp_path / "status.json").write_text(json.dumps({"status": "complete", "attempts": [attempt]}))
    assert [one.seconds for one in read_status(tmp_path).attempts] == [None]


def test_any_recorded_metric_can_be_read(tmp_path: Path, make: Make) -> None:
    """One of one's own, of the attempts that count, and without a time where others kept the machine busy."""
    steps = [{"event": "step", "global_step": n, "aux_loss": n / 2, "data_seconds": 1.0} for n in (1, 2, 3)]
    superseded = {"first_seq": 3, "last_seq": 4}
    again = [{"event": "start", "attempt": 2, "resumed_from": {"attempt": 1}, "supersedes": superseded}]
    again += [{"event": "step", "attempt": 2, "global_step": n, "aux_loss": 10.0 * n} for n in (2, 3)]
    make.journal(tmp_path / "run", [{"event": "start", "num_steps": 3}, *steps, *again])
    run = load_run(tmp_path / "run")
    found = run.metric("step", "aux_loss")
    assert (list(found.steps), list(found.values)) == ([1, 2, 3], [0.5, 20.0, 30.0])
    assert run.metric("step", "aux_loss") is found, "the journal is read once"
    assert len(run.metric("step", "of_nobody")) == 0
    assert list(replace(run, crowded=True).metric("step", "aux_loss").values) == [0.5, 20.0, 30.0]
    assert len(replace(run, crowded=True).metric("step", "sec_per_step")) == 0


def test_a_metric_of_ones_own_is_that_of_the_end_else_of_a_validation_else_of_a_step(
    tmp_path: Path, make: Make
) -> None:
    steps = [{**step(number, 1.0), "wer": wer} for number, wer in enumerate((0.9, 0.5, None), 1)]
    evaluated = [*steps, {"event": "eval", "global_step": 3, "split": "val", "wer": 0.4}]
    ended = [*evaluated, {"event": "end", "status": "complete", "wer": 0.3}]
    read = metric_named("wer").read
    for name, records, wer in (("step", steps, 0.5), ("eval", evaluated, 0.4), ("end", ended, 0.3)):
        make.journal(tmp_path / name, records)
        assert read(load_run(tmp_path / name)) == wer
    assert metric_named("cer").read(load_run(tmp_path / "end")) is None


def test_the_reader_of_series_has_the_same_numbers() -> None:
    """Every series of the recorded runs, record by record; RunData leaves out those that are not finite."""
    for directory in sorted((ROOT / "tests/data/recorded_matrix").glob("*_seed-*")):
        run, series = load_run(directory), RunSeries(directory)
        series.refresh()
        names = {(info.kind, info.field): name for name, info in series.metrics.items()}
        assert len(run.series) >= 3
        for key, wanted in run.series.items():
            found = series.window(names[key], buckets=10**6)
            points = [
                (step, value)
                for step, value in zip(found.x, found.last, strict=True)
                if not math.isnan(value)
            ]
            assert points == [*zip(map(float, wanted.steps), wanted.values, strict=True)], key


@pytest.mark.parametrize("has_room", [True, False])
def test_series_of_many_runs_are_those_of_each(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """Also where no temporary file can be made; what start records have in common is held once."""
    directories = [tmp_path / f"run{number}" for number in range(4)]
    for number, directory in enumerate(directories):
        records = make.training([2.0, 1.0 + number], [0.5] * (number % 2), number / 10)
        records[0]["config"] = {"SEED": number, "LEARNING_RATE": 1 if number == 3 else 1.0, "DEVICE": "cpu"}
        make.journal(directory, records)
    if not has_room:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    for directory, run in zip(
        directories, reading.load_runs(directories, most_other_work=1.0, reads_more=True), strict=True
    ):
        alone = load_run(directory, reads_more=True)
        assert dict(run.series) == alone.series
        assert (run.last_step, run.end) == (alone.last_step, alone.end)
        assert repr({**run.start, "config": dict(run.start["config"])}) == repr(alone.start)  # type: ignore[call-overload]


def load_run_unless_elsewhere(here: int, directory: Path) -> RunData:
    return load_run(directory) if os.getpid() == here else os._exit(9)


def test_many_runs_are_read_by_two_processes_in_their_order(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [tmp_path / f"run{number}" for number in range(5)]
    for number, directory in enumerate(directories[:4]):
        records = make.training([2.0, 1.0, 3.0], [0.5], number / 10)
        for step, record in enumerate([one for one in records if one["event"] == "step"]):
            record["cpu_mem_rss_mb"] = [400.0, 500.0, 450.0][step]
        make.journal(directory, records)
    monkeypatch.setattr(reading, "FEWEST", 5)
    monkeypatch.setattr(reading, "_may_fork", lambda: True)
    runs = reading.load_runs(directories, most_other_work=1.0, reads_more=False)
    assert [run.at_end("test_accuracy") for run in runs] == [0.0, 0.1, 0.2, 0.3, None]
    assert [run.status for run in runs] == [*["complete"] * 4, "missing"]
    loss, memory = (runs[3].metric("step", name) for name in ("train_loss", "cpu_mem_rss_mb"))
    assert (list(loss.values), list(memory.values)) == ([2.0, 1.0, 3.0], [500.0, 450.0])
    assert loss.steps is runs[0].metric("step", "train_loss").steps
    killed = reading._runs(directories, partial(load_run_unless_elsewhere, os.getpid()))
    assert [run.status for run in killed] == [run.status for run in runs]
