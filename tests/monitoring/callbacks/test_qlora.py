"""Programs in examples/, run as a user types them, without a network."""

from __future__ import annotations

import json
import os
from pathlib import Path

from monitoring import read_records
from tests.warm_python import WarmPython

PROGRAM = "examples/qlora_finetune_monitored.py"


def test_a_fine_tuning_is_recorded_and_watched(
    root: Path, results: Path, warm_frameworks: WarmPython, offline: dict[str, str]
) -> None:
    (results / "text.txt").write_text("to be, or not to be, that is the question\n" * 20)
    flags = ["--model-config", "tiny", "--data", "text.txt", "--output-dir", "results/first"]
    flags += ["--gpu-index", "0", "--monitoring-log-dir", "gpu_logs", "--max-steps", "10"]
    flags += ["--enable-prometheus", "--prometheus-port", "0"]
    done = warm_frameworks.run([root / PROGRAM, *flags], cwd=results, env={**os.environ, **offline})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run: results/first; GPU and training metrics: gpu_logs"
    found = [record for record, _ in read_records(results / "results/first/metrics.jsonl")]
    losses = [float(str(record["train_loss"])) for record in found if record["event"] == "step"]
    shown = f"first {losses[0]:.4g}, last {losses[-1]:.4g}, mean {sum(losses) / len(losses):.4g}"
    summary = done.stdout[done.stdout.index("summary of results/first") :].splitlines()
    assert summary[1:3] == ["  steps: 10", f"  train_loss: {shown}"]
    assert [record["lora_rank"] for record in found if record["event"] == "start"] == [8]
    assert [record["global_step"] for record in found if record["event"] == "step"] == list(range(1, 11))
    assert found[-1]["status"] == "complete"
    (log,) = (results / "gpu_logs").glob("training_metrics_*.jsonl")
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [10]


def test_a_model_that_is_nowhere_is_one_error(
    root: Path, results: Path, warm_frameworks: WarmPython, offline: dict[str, str]
) -> None:
    (results / "text.txt").write_text("to be, or not to be, that is the question\n" * 20)
    flags = ["--model-config", "gemma-3n", "--data", "text.txt"]
    done = warm_frameworks.run([root / PROGRAM, *flags], cwd=results, env={**os.environ, **offline})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: google/gemma-3n-E2B-it is not on this machine, and the hub has not given it",
        "hint: --model-config takes a folder with the weights, or tiny",
    ]
