"""Requests to a running training: one step on all ranks, kept over a resume, made again by a reproduction."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kharness.runs.control_changes import write_replayed
from monitoring import read_records
from monitoring.journal.lineage import Lineage

from ...warm_python import WarmPython

FLAGS = (
    *("--batch-size", "7", "--num-epochs", "3", "--device", "cpu", "--tracker", "none", "--log-every", "1"),
    *("--learning-rate", "0.125", "--schedule", "constant", "--checkpoint-every-steps", "3"),
)
REQUESTS: Mapping[int, Mapping[str, object]] = {
    2: {"lr_factor": 0.5},
    3: {"evaluate": True, "checkpoint": True},
    6: {"lr_factor": 0},
    8: {"log_every": 1},
}

Train = Callable[..., list[int]]


@pytest.fixture
def train(root: Path, tmp_path: Path, warm_torch: WarmPython) -> Train:
    """Fifteen steps of tests/data/ddp/train.py in a run directory; returns the exit code of each rank."""

    def start(
        run: str, requests: Mapping[int, Mapping[str, object]], *, size: int = 1, **env: str
    ) -> list[int]:
        of_all = {**os.environ, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), **env}
        of_all["CONTROL"] = json.dumps(requests)
        if size > 1:
            of_all["KHARNESS_RENDEZVOUS_FILE"] = str(tmp_path / f"meeting-{run}")
        flags = () if (tmp_path / run / ".config").exists() else FLAGS
        ranks = [
            warm_torch.start(
                [root / "tests/data/ddp/train.py", "--run-dir", tmp_path / run, *flags],
                env={**of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(size)
        ]
        return [rank.wait(600) for rank in ranks]

    return start


def records(journal: Path, event: str) -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(journal) if record["event"] == event]


def rates(journal: Path) -> dict[int, float]:
    return {record["global_step"]: record["lr"] for record in records(journal, "step")}


def changed(run: Path) -> list[tuple[object, ...]]:
    found = records(run / "metrics.jsonl", "control_change")
    return [(one["global_step"], one["control"], one["old"], one["new"]) for one in found]


def losses(run: Path) -> dict[int, float]:
    return {one["global_step"]: one["train_loss"] for one in records(run / "metrics.jsonl", "step")}


def test_requests_are_applied_in_the_same_step_on_every_rank(train: Train, tmp_path: Path) -> None:
    assert train("run", REQUESTS, size=2) == [0, 0]
    run = tmp_path / "run"
    assert changed(run) == [
        (3, "lr_factor", 1.0, 0.5),
        (4, "evaluate", None, True),
        (4, "checkpoint", None, True),
        (9, "log_every", 1, 5),
    ]
    [clamped] = [one for one in records(run / "metrics.jsonl", "control_change") if one["global_step"] == 9]
    assert (clamped["requested_value"], clamped["source"], clamped["request_time"]) == (1, "a test", 1e9 + 8)
    [refused] = records(run / "metrics.jsonl", "control_refused")
    assert (refused["global_step"], refused["reason"], refused["source"]) == (
        *(7, "lr_factor=0 is outside 0.0001..100"),
        "a test",
    )
    expected = {step: 0.125 if step <= 3 else 0.0625 for step in (*range(1, 9), 10, 15)}
    assert [rates(run / f"metrics{rank}.jsonl") for rank in ("", ".rank0001")] == [expected, expected]
    assert [one["global_step"] for one in records(run / "metrics.jsonl", "eval")] == [4, 5, 10, 15]
    saved = {one["global_step"]: one["reason"] for one in records(run / "metrics.jsonl", "checkpoint")}
    assert (saved[4], set(saved.values())) == ("a test", {"a test", None})
    assert records(run / "metrics.rank0001.jsonl", "control_change") == []


def test_a_requested_stop_is_one_like_by_a_signal(train: Train, tmp_path: Path) -> None:
    assert train("run", {4: {"stop": True}}, size=2) == [75, 75]
    run = tmp_path / "run"
    [end] = records(run / "metrics.jsonl", "end")
    assert (end["status"], end["cause"], end["reason"], end["steps_done"]) == (
        *("interrupted", "stopped"),
        *("a test", 5),
    )
    assert len(records(run / "metrics.rank0001.jsonl", "step")) == 5
    assert train("run", {}) == [0]  # the request is still there, and was answered
    assert (changed(run), max(rates(run / "metrics.jsonl"))) == ([(5, "stop", None, True)], 15)


def test_a_queue_is_answered_once_whenever_the_training_is_killed(train: Train, tmp_path: Path) -> None:
    """Killed in the step that takes it, or between the answer and the removal of its file."""
    queued = json.dumps({"4": [{"lr_factor": 0.5}, {"checkpoint": True}, {"evaluate": True, "profile": 1}]})
    asked = {"lr_factor": 0.5, "checkpoint": True, "evaluate": True, "profile": 1}
    for fault in ("kill:0:5", "kill-answered:0:5"):
        run = tmp_path / fault
        assert train(fault, {}, QUEUED=queued, FAULT=fault) == [-9]
        assert len(list((run / "requests").iterdir())) == 3
        assert train(fault, {}) == [0]
        first = [one for one in records(run / "metrics.jsonl", "control_change") if "replayed" not in one]
        assert {one["control"]: one["new"] for one in first} == asked
        assert (len(first), list((run / "requests").iterdir())) == (4, [])
        assert records(run / "metrics.jsonl", "control_refused") == []


def test_a_stop_outlives_a_training_that_is_killed_while_it_stops(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop = json.dumps({"4": [{"stop": True}]})
    assert train("run", {}, QUEUED=stop, FAULT="kill-in-save:0:5") == [-9]
    assert changed(run) == []
    assert train("run", {}) == [75]
    assert [change[1:] for change in changed(run)] == [("stop", None, True)]
    assert train("run", {}) == [0]


def test_what_comes_too_late_is_refused(train: Train, tmp_path: Path) -> None:
    late = json.dumps({"15": [{"lr_factor": 0.5}, {"stop": True}]})
    assert train("run", {}, QUEUED=late) == [0]
    found = records(tmp_path / "run" / "metrics.jsonl", "control_refused")
    assert [(one["global_step"], one["reason"]) for one in found] == [
        (15, "the training has ended: complete")
    ] * 2
    assert list((tmp_path / "run" / "requests").iterdir()) == []


def test_a_change_survives_a_crash_and_is_made_again_by_a_reproduction(train: Train, tmp_path: Path) -> None:
    """The checkpoint of step 6 holds the first change, and what follows it is in the journal alone."""
    requests = {2: {"lr_factor": 0.5}, 6: {"lr_factor": 0.25, "evaluate": True}}
    assert train("crashed", requests, FAULT="kill:0:9") == [-9]
    for path in (tmp_path / "crashed" / "checkpoints").glob("*step00000007*"):
        path.unlink()  # it was saved because its evaluation was the best
    assert train("crashed", {}) == [0]
    assert train("undisturbed", requests) == [0]
    (tmp_path / "again").mkdir()
    write_replayed(tmp_path / "again", Lineage.read(tmp_path / "undisturbed" / "metrics.jsonl").changes)
    assert train("again", {}) == [0]
    assert losses(tmp_path / "crashed") == losses(tmp_path / "again") == losses(tmp_path / "undisturbed")
    made = [
        *[(3, "lr_factor", 1.0, 0.5), (7, "lr_factor", 0.5, 0.25)],
        (7, "evaluate", None, True),
    ]
    assert [changed(tmp_path / run) for run in ("undisturbed", "again")] == [made, made]
    assert changed(tmp_path / "crashed") == [*made, *made[1:]]
    again = records(tmp_path / "again" / "metrics.jsonl", "control_change")
    assert [(one["replayed"], one["source"]) for one in again] == [(True, "a test")] * 3


def test_steps_are_profiled_on_request_and_results_stay(train: Train, tmp_path: Path) -> None:
    assert train("run", {4: {"profile": 2}}) == [0]
    assert train("plain", {}) == [0]
    found = sorted(path.name for path in (tmp_path / "run" / "profiler").iterdir())
    assert found == [
        f"attempt01_rank0000_steps00000007-00000008.{kind}"
        for kind in ("cpu_time_total.txt", "self_cpu_time_total.txt", "trace.json")
    ]
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    assert not (tmp_path / "plain" / "profiler").exists()
