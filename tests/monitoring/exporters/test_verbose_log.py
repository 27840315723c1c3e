"""The verbose log of a journal holds each record once, however often it is left and taken up again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from monitoring.errors import FollowerOptionsError
from monitoring.exporters.verbose_log import VerboseLogFile
from monitoring.follower import configured_options, follower_options
from monitoring.journal.files import GPU_STATS, SYSTEM_STATS
from monitoring.journal.records import Record

# 2025-01-10T11:30:00 UTC
START = 1736508600.0

BEGUN: Record = {
    "event": "start",
    "time": START,
    "seq": 1,
    "attempt": 1,
    "num_steps": 4,
    "steps_per_epoch": 2,
    "num_epochs": 2,
    "batch_size": 8,
    "model": {"name": "mlp"},
    "hardware": {"host": "here"},
}


def step(seq: int, number: int, **metrics: object) -> Record:
    about: Record = {"event": "step", "time": START + number, "seq": seq, "attempt": 1, "global_step": number}
    return {**about, "sec_per_step": 0.5, **metrics}


def ended(seq: int, status: str) -> Record:
    return {"event": "end", "time": START + 9, "seq": seq, "attempt": 1, "status": status, "steps_done": 4}


def machine(seq: int, memory: float) -> Record:
    about: Record = {"event": "system", "time": START + seq / 10, "seq": seq, "attempt": 1}
    return {**about, "cpu_usage_percent": 50.0, "memory_usage_percent": memory, "memory_used_gb": 8.0}


def deliver(directory: Path, *records: Record, level: str = "high") -> None:
    log = VerboseLogFile(directory, level)
    log.deliver(records)
    log.flush()
    log.close(None)


def entries(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "verbose_training_logs.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_training_is_logged_as_documented(tmp_path: Path) -> None:
    gpu: Record = {
        "event": "gpu",
        "time": START,
        "seq": 1,
        "attempt": 1,
        "multi_gpu_data": [{"index": 0, "name": "A", "memory_used_mb": 97.0, "memory_total_mb": 100.0}],
    }
    saved: Record = {"event": "checkpoint", "time": START + 3, "seq": 6, "attempt": 1, "global_step": 2}
    epoch: Record = {**saved, "event": "epoch", "time": START + 2, "seq": 5, "epoch": 1}
    evaluated: Record = {**saved, "event": "eval", "seq": 4, "split": "val", "val_loss": 0.25}
    deliver(
        tmp_path,
        *(BEGUN, gpu, machine(1, 60.0), step(2, 1, train_loss=0.75, lr=0.1), step(3, 2), evaluated),
        *(epoch, {**saved, "checkpoint_path": "checkpoints/2.pt"}, ended(7, "complete")),
    )
    found = entries(tmp_path)
    assert [(entry["type"], entry.get("seq"), entry.get("epoch")) for entry in found] == [
        ("system_initialization", 1, None),
        ("training_initialization", 1, None),
        ("training_start", 1, None),
        ("epoch_begin", 1, 1),
        ("resource_warning", None, 1),
        ("training_step_complete", 2, 1),
        ("training_step_complete", 3, 1),
        ("evaluation_complete", 4, 1),
        ("epoch_complete", 5, 1),
        ("epoch_begin", 5, 2),
        ("model_checkpoint_save", 6, 2),
        ("training_complete", 7, 2),
    ]
    first = found[5]
    assert first["message"] == "✅ Step 1 completed - Loss: 0.750000"
    assert first["metrics"] == {"loss": 0.75, "learning_rate": 0.1, "sec_per_step": 0.5}
    assert first["timing"] == {
        "step_time_seconds": 0.5,
        "avg_step_time_seconds": 0.5,
        "eta_minutes": 1.5 / 60,
        "estimated_completion": "2025-01-10T11:30:02.500000",
    }
    assert first["resource_usage"]["memory"]["usage_percent"] == 60.0
    assert first["resource_usage"]["gpu"]["devices"][0]["memory_usage_percent"] == 97.0
    assert found[4]["gpu_seq"] == 1


@pytest.mark.parametrize("is_here", [True, False])
def test_what_the_machine_has_is_read_while_the_run_trains_on_it(tmp_path: Path, is_here: bool) -> None:
    """Size of disk and memory, traffic of the network; null where the run is elsewhere, or over."""
    log = VerboseLogFile(tmp_path, "low", is_here=is_here)
    log.deliver([BEGUN])
    log.close(None)
    found = entries(tmp_path)[0]["system_info"]
    assert found["hardware"] == {"host": "here"}
    values = [found["disk"]["total_gb"], found["memory"]["total_gb"], found["network"]["received_bytes"]]
    assert [value is not None for value in values] == [is_here] * 3


def test_a_log_that_is_taken_up_continues_after_its_last_record(tmp_path: Path) -> None:
    deliver(tmp_path, BEGUN, step(2, 1), machine(5, 95.0))
    log = VerboseLogFile(tmp_path, "high")
    assert (log.last_seq(), log.last_seq(SYSTEM_STATS), log.last_seq(GPU_STATS)) == (2, 5, 0)
    log.deliver([step(3, 2)])
    log.close(None)
    assert [entry["seq"] for entry in entries(tmp_path) if entry["type"] == "training_step_complete"] == [
        2,
        3,
    ]


def test_a_log_that_was_just_rotated_knows_its_last_record(tmp_path: Path) -> None:
    deliver(tmp_path, BEGUN, step(2, 1))
    path = tmp_path / "verbose_training_logs.jsonl"
    path.with_name(f"{path.name}.000001.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.write_bytes(b"")
    log = VerboseLogFile(tmp_path, "high")
    assert log.last_seq() == 2
    log.close(None)


def test_a_training_that_failed_is_a_warning(tmp_path: Path) -> None:
    deliver(tmp_path, BEGUN, ended(2, "failed"), level="low")
    last = entries(tmp_path)[-1]
    assert (last["level"], last["message"]) == ("WARNING", "❌ Training ended after step 4: failed")
    assert [entry["type"] for entry in entries(tmp_path)][:3] == [
        *("system_initialization", "training_initialization", "training_start")
    ]


def test_samples_leave_nothing_at_the_lowest_level(tmp_path: Path) -> None:
    deliver(tmp_path, machine(1, 99.0), level="low")
    assert entries(tmp_path) == []


def test_the_level_is_that_of_the_configuration() -> None:
    assert configured_options("verbose_log", {"VERBOSITY_LEVEL": "ultra"}) == {"level": "ultra"}
    with pytest.raises(FollowerOptionsError, match="'loud' is none of low, medium, high, ultra"):
        follower_options("verbose_log", {"level": "loud"})
