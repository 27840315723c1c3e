"""docs/gpus-without-a-run.md under test: its examples run as they stand, on simulated GPUs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from monitoring.gpu_monitor.metrics_log import MetricsLog

from ...simulated_nvml.simulated_nvml import SimulatedNvml

# What the document's loop is given: a training that has these names.
TRAINING = """
class optimizer:
    param_groups = [{"lr": 0.1}]

num_steps, epoch, grad_norm, samples_per_sec = 3, 2.5, 1.25, 32.5

def train_step():
    return 0.125

"""

# The names of the metrics that a training with a monitor shows to Prometheus.
METRICS = {
    "gpu_utilization_percent": "gauge",
    "gpu_memory_used_mb": "gauge",
    "gpu_memory_total_mb": "gauge",
    "gpu_temperature_celsius": "gauge",
    "gpu_power_draw_watts": "gauge",
    "gpu_fan_speed_percent": "gauge",
    "training_loss": "gauge",
    "training_steps_total": "counter",
    "training_epoch": "gauge",
    "learning_rate": "gauge",
    "gradient_norm": "gauge",
    "training_step_duration_seconds": "histogram",
    "memory_allocation_mb": "summary",
}

# With a stand-in for a torch that computes on a GPU.
SCRAPE = """
import sys, types, urllib.request
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback

cuda = types.SimpleNamespace(memory_allocated=lambda: 2**30, memory_reserved=lambda: 2**31)
cuda.is_initialized = lambda: True
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)

with GPUMonitor(gpu_index=0, sample_interval=1.0, log_dir=None, prometheus_port=0) as monitor:
    callback = TrainingMonitorCallback(monitor)
    callback.on_train_begin()
    monitor.ready.wait()
    for step in (0, 1, 20):
        callback.on_step_begin()
        callback.on_step_end(step=step, epoch=2.5, loss=0.1234, lr=1e-4, grad_norm=1.234, throughput=32.5)
    with urllib.request.urlopen(f"http://{monitor.prometheus_address}/metrics") as answer:
        print(answer.read().decode())
    callback.on_train_end()
"""


@pytest.fixture
def document(root: Path) -> str:
    return (root / "docs/gpus-without-a-run.md").read_text()


def blocks(document: str, language: str) -> list[str]:
    """Bodies of the fenced blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.M | re.S)


@pytest.fixture
def environment(simulated_nvml: SimulatedNvml) -> dict[str, str]:
    """One that sees two simulated GPUs."""
    simulated_nvml.write("gpus 2", "all utilization 95", "all temperature 75")
    return {**os.environ, **simulated_nvml.environment()}


def python(*arguments: str, folder: Path, environment: Mapping[str, str]) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def written(folder: Path, prefix: str) -> list[dict[str, Any]]:
    [path] = folder.glob(f"gpu_logs/{prefix}_*.jsonl")
    assert re.fullmatch(rf"{prefix}_\d{{8}}_\d{{6}}\.jsonl", path.name)
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_loop_writes_the_documented_files(document: str, tmp_path: Path, environment: dict[str, str]) -> None:
    begin = "callback.on_train_begin()\n"
    loop = blocks(document, "python")[0]
    assert begin in loop
    # its three steps would be over before there is a sample
    training = TRAINING + loop.replace(begin, begin + "gpu_monitor.ready.wait()\n")
    python("-c", training, folder=tmp_path, environment=environment)
    gpus, steps, messages = (
        written(tmp_path, kind) for kind in ("gpu_metrics", "training_metrics", "monitor_log")
    )
    [end] = [line for line in messages if line["message"] == "training ends"]
    examples = [orjson.loads(block) for block in blocks(document, "json")]
    assert [list(line) for line in (gpus[0], steps[-1], end)] == [list(example) for example in examples]
    assert [line["step"] for line in steps] == [0, 1, 2]
    assert (steps[-1]["learning_rate"], steps[-1]["throughput_samples_per_sec"]) == (0.1, 32.5)
    assert len({line["correlation_id"] for line in [*gpus, *steps, *messages]}) == 1


def test_statistics_of_the_document(document: str, tmp_path: Path, environment: dict[str, str]) -> None:
    example = blocks(document, "python")[1]
    told = python("-c", example, folder=tmp_path, environment=environment).splitlines()
    assert [line.split()[0] for line in told] == ["0", "1"]
    assert "'utilization_percent': 95.0" in told[0]


def test_reader_of_the_document_finds_full_files(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = MetricsLog(Path("gpu_logs"), "gpu_metrics", "20250730_123456", file_bytes=200)
    for number in range(12):
        log.append({"timestamp": f"t{number}", "gpu_index": 0, "power_draw_watts": number})
    log.close()
    assert len(list(Path("gpu_logs").iterdir())) > 2
    exec(blocks(document, "python")[-1], {})
    assert capsys.readouterr().out.splitlines() == [f"t{number} 0 {number}" for number in range(12)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_command_of_the_document(
    document: str, tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    [shell] = blocks(document, "bash")
    _, *arguments = shell.splitlines()[number].split()
    arguments = ["0" if word == "9090" else word for word in arguments]  # that one may be taken here
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            first = next((line for line in iter(process.stdout.readline, "") if " GPU " in line), "")
        finally:
            process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(600) == 0
    assert re.fullmatch(r"\S+Z  GPU 0 Simulated H100 80GB   95%  500 MiB .*  75 °C  70 W  fan 0%\n", first)
    assert re.search(r"^gpu_logs/gpu_metrics_\d{8}_\d{6}\.jsonl$", rest, flags=re.M)
    indices = {line["gpu_index"] for line in written(tmp_path, "gpu_metrics")}
    assert indices == ({0, 1} if "all" in arguments else {0})


def test_reader_that_has_seen_enough_ends_the_command(tmp_path: Path, environment: dict[str, str]) -> None:
    command = f"'{sys.executable}' -m monitoring.gpu_monitor --interval 0.01 | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_scrape_of_a_training_has_every_documented_metric(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    shown = python("-c", SCRAPE, folder=tmp_path, environment=environment)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", shown, flags=re.M))
    assert {name: types.get(name) for name in METRICS} == METRICS
    values = dict(re.findall(r"^(\w+)\{[^}]*\} (\S+)$", shown, flags=re.M))
    assert {name: values.get(name) for name in list(METRICS)[6:-1]} == {
        "training_loss": "0.1234",
        "training_steps_total": "20.0",
        "training_epoch": "2.5",
        "learning_rate": "0.0001",
        "gradient_norm": "1.234",
        "training_step_duration_seconds": None,
    }
    assert values["training_step_duration_seconds_count"] == "3.0"
    assert float(values["memory_allocation_mb_sum"]) == pytest.approx(3 * 1024)
    assert values["gpu_temperature_celsius"] == "75.0"


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("gpus-without-a-run.md", [sys.executable, "-m", "monitoring.gpu_monitor"]),
        ("gpu-dashboard.md", [sys.executable, "-m", "monitoring.gpu_dashboard"]),
    ],
)
def test_every_option_of_the_command_is_in_the_document(root: Path, page: str, command: list[str]) -> None:
    told = subprocess.run(
        [*command, "--help"], capture_output=True, text=True, timeout=600, check=True
    ).stdout
    options = set(re.findall(r"--[\w-]+", told)) - {"--help"}
    assert set(re.findall(r"^\| `(--[\w-]+)`", (root / "docs" / page).read_text(), flags=re.M)) == options


def test_example_monitors(root: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    example = str(root / "scripts/monitor_training_example.py")
    told = python(example, "--mode", "monitor", "--samples", "1", folder=tmp_path, environment=environment)
    assert [line.split()[1:3] for line in told.splitlines()[:2]] == [["GPU", "0"], ["GPU", "1"]]
    assert [line["gpu_index"] for line in written(tmp_path, "gpu_metrics")][:2] == [0, 1]
