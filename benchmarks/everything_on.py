"""What it costs a training to have everything on that watches it. Run by `make bench ONLY=everything_on`.

Pairs of the same training on the CPU, one thread: with nothing but its journal, and with GPU and machine
monitoring, every tracker that is installed, timers on every rank, verbose logging at its highest level,
Prometheus, control and all alert rules. Two things are compared:

- `of the training`: CPU time of the training's thread in what its steps do beside the model's work, medians
  over all steps and over the runs, and how much more that is, as a share of the median step. It is the same
  on a machine that has other things to do. What comes once a second is in the mean, which follows.
- `ratio`: the median steps (`sec_per_step` of records). Here the agent shows, a process of its own at low
  priority, wherever cores, caches and memory are shared; its first seconds go into importing trackers.

    python benchmarks/everything_on.py [PAIRS]
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from monitoring import read_records

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 7
# Model -> flags of a training of some seconds.
TRAININGS = {
    "lenet5": ["--dataset", "mnist-subset", "--num-epochs", "6"],
    "gpt2": ["--batch-size", "16", "--max-steps", "100", "--eval-interval", "100"],
}
TRACKERS = ("tensorboard", "trackio", "wandb")
EVERYTHING = {
    "GPU_MONITOR": "y",
    "MACHINE_MONITOR": "y",
    "INCLUDE_TIMER_METRICS": "y",
    "INCLUDE_PERFORMANCE_METRICS": "y",
    "USE_VERBOSE_LOGGING": "y",
    "VERBOSITY_LEVEL": "ultra",
    "PROMETHEUS_EXPORTER": "y",
    "PROMETHEUS_PORT": "0",
}


class Trained(NamedTuple):
    """One training."""

    step: float
    """Seconds of the median step."""
    num_steps: int
    hooks: float
    """CPU seconds of the training's thread beside the model's work, of the median step."""
    mean_hooks: float


def main(argv: list[str]) -> int:
    """Print, per model, the medians of the pairs."""
    pairs = int(argv[0]) if argv else PAIRS
    trackers = [name for name in TRACKERS if importlib.util.find_spec(name)]
    print(f"{pairs} pairs, 1 thread, torch {torch.__version__}; trackers: {', '.join(trackers)}")
    print(
        f"{'model':<8}{'steps':>6}{'alone, ms':>11}{'everything':>12}{'ratio':>8}"
        f"{'of the training, us':>23}{'more, of a step':>17}{'mean':>8}"
    )
    for model, flags in TRAININGS.items():
        alone: list[Trained] = []
        watched: list[Trained] = []
        for pair in range(pairs):
            both = [(alone, ["--tracker", "none"]), (watched, watched_flags(trackers))]
            for found, more in both if pair % 2 else reversed(both):
                found.append(trained(model, [*flags, *more]))
        few, many = middle(alone), middle(watched)
        ratio = statistics.median(b.step / a.step for a, b in zip(alone, watched, strict=True))
        print(
            f"{model:<8}{few.num_steps:>6}{1e3 * few.step:>11.3f}{1e3 * many.step:>12.3f}{ratio:>8.4f}"
            f"{1e6 * few.hooks:>15.0f} -> {1e6 * many.hooks:.0f}"
            f"{100 * (many.hooks - few.hooks) / few.step:>15.2f} %"
            f"{100 * (many.mean_hooks - few.mean_hooks) / few.step:>6.2f} %",
            flush=True,
        )
    return 0


def middle(found: list[Trained]) -> Trained:
    return Trained(*(statistics.median(values) for values in zip(*found, strict=True)))


def watched_flags(trackers: list[str]) -> list[str]:
    """Everything as flags."""
    flags = ["--tracker", ",".join(trackers) or "none"]
    for symbol, value in EVERYTHING.items():
        name = "--" + symbol.lower().replace("_", "-")
        if value in "yn":
            flags.append(name if value == "y" else name.replace("--", "--no-", 1))
        else:
            flags += [name, value]
    return flags


def trained(model: str, flags: list[str]) -> Trained:
    """In a process of its own, this file with the model's name."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Path(folder) / "run"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "TRACKIO_DIR": str(Path(folder) / "trackio"),
        }
        command = [sys.executable, __file__, model, f"{folder}/hooks.json", "--run-dir", str(run), *flags]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        records = [record for record, _ in read_records(run / "metrics.jsonl")]
        hooks = json.loads((Path(folder) / "hooks.json").read_text())
    steps: list[Any] = [record for record in records if record["event"] == "step"]
    seconds = statistics.median(step["sec_per_step"] for step in steps)
    return Trained(seconds, steps[-1]["global_step"], statistics.median(hooks), statistics.mean(hooks))


def measure(model: str, found: Path) -> None:
    """Train, in this process, and write the CPU seconds of each step's hooks."""
    training: Any = importlib.import_module("kharness.training.steps.training")
    of_steps: list[float] = []

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name == "look":  # the first of a step
                of_steps.append(0.0)
            before = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                of_steps[-1] += time.thread_time() - before

        return call

    def open_timed(*arguments: Any, **named: Any) -> Any:
        telemetry = open_telemetry(*arguments, **named)
        for name in ("begin_step", "end_step"):
            setattr(telemetry, name, timed(name, getattr(telemetry, name)))
        return telemetry

    open_telemetry = training.open_telemetry
    training.open_telemetry = open_timed
    for where, name in (
        (training.StepControl, "look"),
        (training.StepControl, "apply"),
        (training.Training, "_log_step"),
    ):
        setattr(where, name, timed(name, getattr(where, name)))
    try:
        sys.argv = [str(ROOT / model / "train.py"), *sys.argv[3:]]
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        found.write_text(json.dumps(of_steps[5:]))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in TRAININGS:
        measure(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
