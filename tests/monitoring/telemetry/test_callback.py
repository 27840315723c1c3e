"""TelemetryCallback: the documented files and metrics, of one rank and of several."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from monitoring.telemetry import TelemetryCallback
from monitoring.telemetry.device_pool import DeviceScalar

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...warm_python import WarmPython

Made = Callable[..., TelemetryCallback]


def train(callback: TelemetryCallback, *, steps: int = 4, parts: int = 3) -> None:
    """An epoch of steps, each of some microsteps."""
    callback.on_epoch_begin()
    for _ in range(steps):
        callback.on_step_begin()
        for _ in range(parts - 1):
            callback.on_substep_end()
        callback.on_step_end()
    callback.on_epoch_end()


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "telemetry" / name).read_text())
    return found


def test_each_phase_is_timed_and_logged_under_its_documented_name(
    made_callback: Made, tmp_path: Path
) -> None:
    callback = made_callback(tmp_path, include_timer_metrics=True)
    train(callback)
    added = callback.on_log({"step": 4, "loss": torch.tensor(0.5)})
    assert set(added) == {
        f"rank000_{phase}_{each}" for phase in ("microsteps", "steps", "epochs") for each in ("mean", "max")
    }
    found = read(tmp_path, "telemetry_callback_rank0000.json")
    counts = {name: timer["count"] for name, timer in found["timers"].items()}
    assert counts == {"microsteps": 12, "steps": 4, "epochs": 1}
    assert found["timers"]["steps"]["mean"] == added["rank000_steps_mean"]
    assert found["timers"]["microsteps"]["total"] <= found["timers"]["steps"]["total"]
    assert read(tmp_path, "telemetry_callback_metrics_rank0000.json") == {"step": 4, "loss": 0.5}
    assert sorted(os.listdir(tmp_path / "telemetry")) == [
        "telemetry_callback_metrics_rank0000.json",
        "telemetry_callback_rank0000.json",
    ]


def test_without_include_timer_metrics_nothing_is_added(made_callback: Made, tmp_path: Path) -> None:
    callback = made_callback(tmp_path)
    train(callback)
    assert callback.on_log({"step": 4}) == {}
    assert read(tmp_path, "telemetry_callback_rank0000.json")["timers"]["steps"]["count"] == 4


def test_what_a_device_has_still_to_deliver_is_null_and_not_waited_for(
    made_callback: Made, tmp_path: Path
) -> None:
    def item() -> float:
        raise AssertionError("waited for the device")

    under_way, there = DeviceScalar(lambda: False, item), DeviceScalar(lambda: True, lambda: 2.0)
    made_callback(tmp_path).on_log({"loss": under_way, "time": there, "odd": [1], "nan": float("nan")})
    found = read(tmp_path, "telemetry_callback_metrics_rank0000.json")
    assert found == {"loss": None, "time": 2.0, "odd": None, "nan": None}


def test_number_that_cannot_be_had_is_null(made_callback: Made, tmp_path: Path) -> None:
    def item() -> float:
        raise RuntimeError("the device has failed")

    failed, none = DeviceScalar(lambda: True, item), torch.empty((), device="meta")
    made_callback(tmp_path).on_log({"loss": failed, "norm": none, "step": 4})
    found = read(tmp_path, "telemetry_callback_metrics_rank0000.json")
    assert found == {"loss": None, "norm": None, "step": 4}


def test_world_process_zero_only_leaves_the_other_ranks_alone(made_callback: Made, tmp_path: Path) -> None:
    other = made_callback(tmp_path, rank=1)
    train(other)
    assert other.on_log({"step": 4}) == {}
    other.on_train_end()
    assert not (tmp_path / "telemetry").exists()
    made_callback(tmp_path, rank=0).on_train_end()
    assert not (tmp_path / "telemetry/telemetry_callback_all_ranks.json").exists()


def test_all_ranks_stand_in_one_file_without_waiting_for_each_other(
    made_callback: Made, tmp_path: Path
) -> None:
    ranks = [made_callback(tmp_path, rank=rank, world_process_zero_only=False) for rank in range(3)]
    for number, callback in enumerate(ranks, 1):
        train(callback, steps=number)
    for callback in (ranks[1], ranks[0], ranks[2]):
        callback.on_log({})
    found = read(tmp_path, "telemetry_callback_all_ranks.json")
    assert {name: rank["timers"]["steps"]["count"] for name, rank in found.items()} == {
        "rank0000": 1,
        "rank0001": 2,
    }
    ranks[0].on_train_end()
    assert list(read(tmp_path, "telemetry_callback_all_ranks.json")) == ["rank0000", "rank0001", "rank0002"]


def test_the_files_are_written_at_most_once_in_a_while_and_at_the_end(
    made_callback: Made, tmp_path: Path
) -> None:
    callback = made_callback(tmp_path, write_every=1e6, include_timer_metrics=True)
    train(callback)
    assert callback.on_log({"step": 4})
    train(callback)
    assert callback.on_log({"step": 8}) == {}
    assert read(tmp_path, "telemetry_callback_rank0000.json")["timers"]["steps"]["count"] == 4
    callback.on_step_begin()  # one that is broken off
    callback.on_train_end()
    assert read(tmp_path, "telemetry_callback_rank0000.json")["timers"]["steps"]["count"] == 8
    assert read(tmp_path, "telemetry_callback_metrics_rank0000.json") == {"step": 8}


def test_a_folder_that_cannot_be_written_is_reported_once(
    made_callback: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "telemetry").write_text("a file")
    callback = made_callback(tmp_path)
    callback.on_log({})
    callback.on_train_end()
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith(f"warning: {tmp_path}/telemetry/telemetry_callback_metrics_rank0000.json: ")


def test_temperatures_are_summed_up_of_all_ranks(
    simulated_nvml: SimulatedNvml, warm_nvml: WarmPython, tmp_path: Path
) -> None:
    """Simulated GPUs, read by the real pynvml."""
    simulated_nvml.write("gpus 2", "gpu 0 temperature 60", "gpu 1 temperature 70")
    program = (
        "import os; from monitoring.telemetry import TelemetryCallback; from pathlib import Path\n"
        "callback = TelemetryCallback(Path('.'), world_process_zero_only=False,\n"
        "    track_gpu_temperature=True, include_timer_metrics=True)\n"
        "print(callback.on_log({})); callback.on_train_end()"
    )
    for rank in ("1", "0"):
        environment = {**simulated_nvml.environment(), "RANK": rank, "LOCAL_RANK": rank}
        done = warm_nvml.run(["-c", program], env=environment, cwd=tmp_path)
        assert done.stderr == ""
    assert eval(done.stdout) == {
        "rank000_gpu_temperature_mean": 60,
        "rank000_gpu_temperature_max": 60,
    }
    found = read(tmp_path, "telemetry_callback_gpu_temperature_summary.json")["gpu_temperature"]
    assert (found["max"]["mean"], found["max"]["min_rank"], found["max"]["max_rank"]) == (65, 0, 1)
    assert list(found) == ["mean", "median", "std_dev", "min", "max"]
