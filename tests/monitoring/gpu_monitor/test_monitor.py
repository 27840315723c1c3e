"""GPUMonitor and its callback: files, statistics, scrapes and messages, on a simulated NVML or none."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring import Run
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
from monitoring.gpu_monitor.metrics_log import MetricsLog
from monitoring.host.correlation import CORRELATION_ID

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until

TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

TRAINING = """
import sys
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback

monitor = GPUMonitor(gpu_index="all", sample_interval=0.02, log_dir=sys.argv[1])
callback = TrainingMonitorCallback(monitor)
callback.on_train_begin()
monitor.ready.wait()
for step in range(3):
    callback.on_step_begin()
    measured = {"loss": 1 / (step + 1), "lr": 0.1, "grad_norm": 2.0, "throughput": 64.0}
    callback.on_step_end(step=step, epoch=step / 2, **measured)
while len(monitor.history.snapshots()) < 3:
    pass
callback.on_train_end()
print({index: tuple(metrics["temperature_celsius"]) for index, metrics in monitor.statistics().items()})
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def only(directory: Path, prefix: str) -> Path:
    """The one file of that kind, whose name is as documented."""
    [path] = directory.glob(f"{prefix}_*.jsonl")
    assert re.fullmatch(rf"{prefix}_\d{{8}}_\d{{6}}\.jsonl", path.name)
    return path


def python(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def two_gpus(simulated_nvml: SimulatedNvml) -> dict[str, str]:
    """The environment of a process that sees two simulated GPUs; the second tells no temperature."""
    simulated_nvml.write(
        "gpus 2",
        "all utilization 95",
        "all memory_total 24576",
        "all memory_used 12288",
        "all temperature 75",
        "all power 320",
        "all fan 65",
        "gpu 1 fan unsupported",
    )
    return dict(simulated_nvml.environment())


def test_training_leaves_both_files_as_documented(two_gpus: dict[str, str], tmp_path: Path) -> None:
    done = python(
        "-c", TRAINING, str(tmp_path), environment={**two_gpus, CORRELATION_ID: "c0ffee", "RANK": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("{0: (75.0, 75, 75, 75), 1: (75.0, 75, 75, 75)}\n")
    gpus = lines(only(tmp_path, "gpu_metrics"))
    assert len(gpus) >= 6
    first, second = gpus[:2]
    assert re.fullmatch(TIMESTAMP, first.pop("timestamp"))
    assert first == {
        "gpu_index": 0,
        "utilization_percent": 95,
        "memory_used_mb": 12288,
        "memory_total_mb": 24576,
        "memory_percent": 50,
        "temperature_celsius": 75,
        "power_draw_watts": 320,
        "fan_speed_percent": 65,
        "energy_joules": 0,
        "gpu_uuid": "GPU-51a10000-0000-4000-8000-000000000000",
        "gpu_name": "Simulated H100 80GB",
        "state": "ok",
        "error": None,
        "correlation_id": "c0ffee",
    }
    assert (second["gpu_index"], second["fan_speed_percent"]) == (1, None)
    steps = lines(only(tmp_path, "training_metrics"))
    assert [re.fullmatch(TIMESTAMP, step.pop("timestamp")) is None for step in steps] == [False] * 3
    assert [0 <= step.pop("step_duration_seconds") < 60 for step in steps] == [True] * 3
    assert steps[1] == {
        "step": 1,
        "epoch": 0.5,
        "loss": 0.5,
        "learning_rate": 0.1,
        "gradient_norm": 2.0,
        "throughput_samples_per_sec": 64.0,
        "memory_allocated_mb": None,
        "memory_reserved_mb": None,
        "correlation_id": "c0ffee",
        "rank": 1,
    }
    log = lines(only(tmp_path, "monitor_log"))
    assert [line["message"] for line in log] == [
        *("monitoring begins", "training begins", "training ends", "monitoring ends")
    ]
    assert {(line["correlation_id"], line["rank"]) for line in log} == {("c0ffee", 1)}


def test_callback_never_raises_for_what_is_no_number(tmp_path: Path) -> None:
    monitor = GPUMonitor(log_dir=tmp_path, root=tmp_path)
    callback = TrainingMonitorCallback(monitor)
    callback.on_train_begin()
    callback.on_step_end(step="seven", epoch=None, loss=nan, lr=object(), grad_norm=[1, 2], throughput="64")
    callback.on_train_end()
    [step] = lines(only(tmp_path, "training_metrics"))
    assert {key: step[key] for key in ("step", "epoch", "loss", "learning_rate", "gradient_norm")} == {
        "step": None,
        "epoch": None,
        "loss": None,
        "learning_rate": None,
        "gradient_norm": None,
    }
    assert (step["nonfinite"], step["throughput_samples_per_sec"]) == (["loss"], 64.0)


def test_monitor_without_a_gpu_says_so_and_stays_usable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with GPUMonitor(log_dir=tmp_path / "logs", root=tmp_path, prometheus_port=0) as monitor:
        assert monitor.ready.wait(600)
        TrainingMonitorCallback(monitor).on_step_end(step=1, loss=0.5)
        with urllib.request.urlopen(f"http://{monitor.prometheus_address}/metrics", timeout=600) as answer:
            shown = answer.read().decode()
        assert (monitor.latest, monitor.statistics()) == (None, {})
    assert monitor.problems == ["there is no GPU to sample"]
    assert caplog.messages == ["there is no GPU to sample"]
    assert 'training_loss{host="' in shown
    assert "gpu_up" not in shown
    assert list((tmp_path / "logs").glob("gpu_metrics_*")) == []
    assert lines(only(tmp_path / "logs", "training_metrics"))[0]["loss"] == 0.5


def test_scrape_has_the_documented_metrics(two_gpus: dict[str, str], tmp_path: Path) -> None:
    command = ["-m", "monitoring.gpu_monitor", "--gpu", "1", "--interval", "0.05", "--prometheus-port", "0"]
    process = subprocess.Popen(
        [sys.executable, *command, "--log-dir", str(tmp_path)],
        env={**os.environ, **two_gpus},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[0]
        assert " GPU 1 " in process.stdout.readline()  # so there is a sample
        with urllib.request.urlopen(address, timeout=600) as answer:
            shown = answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=600)[0]
    assert process.returncode == 0
    gpus = {line.partition("{")[0]: line for line in shown.splitlines() if line.startswith("gpu_")}
    told = ("utilization_percent", "memory_used_mb", "memory_total_mb", "temperature_celsius")
    assert [float(gpus[f"gpu_{name}"].rpartition(" ")[2]) for name in told] == [95, 12288, 24576, 75]
    assert 'gpu="1"' in gpus["gpu_up"]
    assert "gpu_fan_speed_percent" not in gpus
    assert f"{only(tmp_path, 'gpu_metrics')}\n" in rest
    assert {line["gpu_index"] for line in lines(only(tmp_path, "gpu_metrics"))} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "two"], "argument --gpu: 'two' is neither a GPU's number nor all\n"),
        (["--interval", "0"], "argument --interval: '0' is not a number of seconds above 0\n"),
    ],
)
def test_command_refuses_what_is_no_number(arguments: list[str], message: str) -> None:
    done = python("-m", "monitoring.gpu_monitor", *arguments, environment={})
    assert (done.returncode, done.stderr.rpartition("error: ")[2]) == (2, message)


def test_command_with_a_taken_port_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = python("-m", "monitoring.gpu_monitor", f"--prometheus-port={port}", environment={})
    assert (done.returncode, done.stderr) == (
        2,
        f"error: 127.0.0.1:{port}: address already in use\n"
        "hint: choose a free port with --prometheus-port; 0 is any\n",
    )


def test_training_goes_on_when_the_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with GPUMonitor(log_dir=None, root=tmp_path, prometheus_port=port) as monitor:
            assert monitor.ready.wait(600)
    assert monitor.problems == [
        f"no metrics for Prometheus: 127.0.0.1:{port}: address already in use;"
        " choose a free port with prometheus_port; 0 is any",
        "there is no GPU to sample",
    ]


def test_lost_gpu_is_told_and_the_other_goes_on(simulated_nvml: SimulatedNvml, tmp_path: Path) -> None:
    simulated_nvml.write("gpus 2", "all utilization 50")
    environment = {**os.environ, **simulated_nvml.environment()}
    command = [sys.executable, "-m", "monitoring.gpu_monitor", "--gpu", "all", "--interval", "0.02"]
    process = subprocess.Popen(
        [*command, "--log-dir", str(tmp_path)], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: list(tmp_path.glob("gpu_metrics_*.jsonl")), "the first sample")
        simulated_nvml.add("gpu 1 state lost")
        path = only(tmp_path, "gpu_metrics")
        wait_until(lambda: b'"state":"lost"' in path.read_bytes(), "the loss")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(600)
    last = {line["gpu_index"]: line for line in lines(path)}
    assert (last[0]["state"], last[0]["utilization_percent"]) == ("ok", 50)
    assert (last[1]["state"], last[1]["utilization_percent"]) == ("lost", None)
    messages = [line["message"] for line in lines(only(tmp_path, "monitor_log"))]
    name = f"GPU 1 ({last[1]['gpu_uuid']})"
    assert [message for message in messages if "lost" in message] == [f"{name} is lost: GPU is lost"]


def test_monitor_inside_a_run_has_the_runs_id(tmp_path: Path) -> None:
    with Run(tmp_path / "run", name="r", project="p", config={}, agent=False) as run:
        assert GPUMonitor(log_dir=None).correlation_id == run.run_id
        told = python("-c", f"import os; print(os.environ['{CORRELATION_ID}'])", environment={})
        assert told.stdout == f"{run.run_id}\n"
    assert CORRELATION_ID not in os.environ
    assert GPUMonitor(log_dir=None).correlation_id != run.run_id


def test_two_monitors_of_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    logs = [MetricsLog(tmp_path, "gpu_metrics", "20250730_123456") for _ in range(3)]
    for log in logs:
        log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gpu_metrics_20250730_123456.jsonl",
        "gpu_metrics_20250730_123456_2.jsonl",
        "gpu_metrics_20250730_123456_3.jsonl",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device of Linux")
def test_full_disk_keeps_lines_until_there_is_room(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "gpu_metrics", "20250730_123456")
    file = os.dup(log._file.fd)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._file.fd)
    log.append({"sample": 1})
    failures = [log.failure]
    os.dup2(file, log._file.fd)
    log.append({"sample": 2})
    log.close()
    for fd in (file, full):
        os.close(fd)
    failures.append(log.failure)
    assert [failure is None for failure in failures] == [False, True]
    assert lines(log.path) == [{"sample": 1}, {"sample": 2}]


def test_example_trains_and_labels_itself(root: Path, tmp_path: Path) -> None:
    command = [
        "scripts/monitor_training_example.py",
        "--mode",
        "train",
        "--steps",
        "5",
        "--step-seconds",
        "0",
    ]
    done = python(str(root / command[0]), *command[1:], "--log-dir", str(tmp_path), environment={})
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == (
        "a SIMULATED training of 5 steps: its losses are made up, only the GPUs are real"
    )
    assert [line["step"] for line in lines(only(tmp_path, "training_metrics"))] == [0, 1, 2, 3, 4]
