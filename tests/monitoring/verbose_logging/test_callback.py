"""The callback without Hugging Face: what becomes of its log when something dies, and that nothing raises."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monitoring.verbose_logging.hooks import VerboseHooks

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until

STATE = SimpleNamespace(global_step=1, epoch=0.5, max_steps=4, num_train_epochs=1)


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def hooks(path: Path) -> Iterator[VerboseHooks]:
    made = VerboseHooks("high", path)
    yield made
    made.close()


def test_a_written_entry_is_there_on_return(hooks: VerboseHooks, path: Path) -> None:
    entry = {"timestamp": "2025-01-10T11:30:00", "type": "note", "level": "INFO", "message": "mine"}
    hooks._write_log(entry)
    first, second = entries(path)
    assert first["type"] == "system_initialization"
    assert first["system_info"].keys() >= {"platform", "hardware", "cpu", "memory", "disk", "network", "gpu"}
    assert second == entry


def test_helper_methods_say_what_the_machine_is_and_does(hooks: VerboseHooks) -> None:
    usage: Any = hooks._get_current_resource_usage()
    assert usage.keys() == {"sampled_at", "cpu", "memory", "gpu", "disk", "process"}
    memory = usage["memory"]
    assert memory["usage_percent"] == pytest.approx(100 * memory["used_gb"] / memory["total_gb"])
    assert usage["cpu"]["usage_percent"] is None  # nothing to compare with yet
    info: Any = hooks._get_comprehensive_system_info()
    assert info["memory"]["total_gb"] == memory["total_gb"]
    assert info["hardware"]["cpu_count"] == os.cpu_count()
    assert hooks._get_model_info(None) == {}


def test_what_was_sent_is_written_when_the_training_is_killed(path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            hooks = VerboseHooks("high", path)
            hooks.on_train_begin(None, STATE, None)
            hooks._append(("step_end", time.perf_counter(), 1, 0.5, 0.25))
            hooks.on_epoch_end(None, STATE, None)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: path.exists() and len(path.read_bytes().splitlines()) == 4)
    found = [entry["type"] for entry in entries(path)]
    assert found == ["system_initialization", "training_start", "training_step_complete", "epoch_complete"]


def test_a_writer_that_was_killed_is_replaced(hooks: VerboseHooks, path: Path) -> None:
    hooks._write_log({"n": 1})
    os.kill(hooks._channel._pid, signal.SIGKILL)
    os.waitid(os.P_PID, hooks._channel._pid, os.WEXITED | os.WNOWAIT)
    hooks._channel._next_start = 0.0  # else it is started a second later
    hooks.on_epoch_end(None, STATE, None)  # finds out, and is lost
    hooks._channel._next_start = 0.0
    hooks._write_log({"n": 2})
    assert [entry.get("n") or entry["type"] for entry in entries(path)][:2] == ["system_initialization", 1]
    assert entries(path)[-1] == {"n": 2}
    assert (
        "the process that writes the log has ended"
        in (path.parent / "verbose_logging_errors.log").read_text()
    )


def test_a_log_of_many_steps_has_each_once(hooks: VerboseHooks, path: Path) -> None:
    hooks.on_train_begin(None, STATE, None)
    for step in range(1, 301):
        state = SimpleNamespace(global_step=step, epoch=step / 300)
        hooks.on_step_begin(None, state, None)
        hooks.on_step_end(None, state, None)
        logs = {"loss": float("nan") if step == 7 else 0.5, "who": object()}
        hooks.on_log(None, state, None, logs=logs)
        logs.clear()  # as a callback after it may
    hooks.on_train_end(None, state, None)
    steps = [entry for entry in entries(path) if entry["type"] == "training_step_complete"]
    assert [entry["step"] for entry in steps] == [*range(1, 301)]
    assert [entry["metrics"]["loss"] for entry in steps[5:8]] == [0.5, None, 0.5]
    assert steps[6]["metrics"] == {"loss": None, "who": None, "nonfinite": ["loss"]}
    assert all(entry["timing"]["step_time_seconds"] >= 0 for entry in steps)


class Hostile:
    """An object whose every attribute raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize("level", ["low", "ultra"])
def test_no_hook_raises(path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = VerboseHooks(level, path)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # no writer can be started either
    names = [name for name, _ in inspect.getmembers(hooks, callable) if name.startswith("on_")]
    for name in names:
        for thing in (None, Hostile()):
            getattr(hooks, name)(thing, thing, thing, model=thing, train_dataloader=thing, logs=thing)
    hooks._write_log({1: Hostile()})  # type: ignore[dict-item]
    hooks.close()
    assert len(names) == 16
    assert not path.exists()
    assert "cannot be started" in (path.parent / "verbose_logging_errors.log").read_text()


def test_another_rank_writes_files_of_its_own(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    hooks = VerboseHooks("low", path)
    hooks._write_log({"n": 1})
    hooks.close()
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "log.rank0003.jsonl",
        "training_logs.rank0003.jsonl",
    ]


def test_gpus_are_in_the_log_and_warn(visible_nvml: SimulatedNvml, hooks: VerboseHooks, path: Path) -> None:
    visible_nvml.write("gpus 2", "gpu 1 memory_used 80000")
    hooks.on_train_begin(None, STATE, None)

    def warned() -> bool:
        hooks.flush()
        return any(entry.get("resource") == "GPU 1 memory" for entry in entries(path))

    wait_until(warned)
    [warning] = [entry for entry in entries(path) if entry.get("resource") == "GPU 1 memory"]
    assert warning["message"] == "⚠️ High GPU 1 memory usage: 98.1%"
    devices = warning["resource_usage"]["gpu"]["devices"]
    assert [device["index"] for device in devices] == [0, 1]
    assert devices[1]["memory_total_gb"] == pytest.approx(81559 * 2**20 / 1e9)


def test_a_folder_that_cannot_be_made_is_told_on_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no place for a log of errors either; the training goes on."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file/logs/log.jsonl"
    made = VerboseHooks("high", path)
    made.on_train_begin(None, STATE, None)
    made.on_log(None, STATE, None, logs={"loss": 1.0})
    made.close()
    assert f"warning: verbose log: {path} cannot be written: NotADirectoryError" in capfd.readouterr().err
