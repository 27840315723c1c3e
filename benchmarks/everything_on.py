"""What it costs a training to have everything on that watches it. Run by `make bench ONLY=everything_on`.

Pairs of the same training on the CPU, one thread: with nothing but its journal, and with GPU and machine
monitoring, every tracker that is installed, timers on every rank, verbose logging at its highest level,
Prometheus, control and all alert rules. What is compared is the median step of a run (`sec_per_step` of its
records): what is done once, such as the counting of FLOPs before the second step, is no step's cost. The
agent and the verbose log's writer are other processes; on a machine whose cores are all busy they show here.

    python benchmarks/everything_on.py [PAIRS]
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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


def main(argv: list[str]) -> int:
    """Print, per model, the median ratio of the pairs."""
    pairs = int(argv[0]) if argv else PAIRS
    trackers = [name for name in TRACKERS if importlib.util.find_spec(name)]
    print(f"{pairs} pairs, 1 thread, torch {torch.__version__}; trackers: {', '.join(trackers)}")
    print(f"{'model':<10}{'steps':>7}{'alone, ms':>14}{'with everything':>17}{'ratio':>9}{'of pairs':>19}")
    for model, flags in TRAININGS.items():
        alone: list[tuple[float, int]] = []
        watched: list[tuple[float, int]] = []
        for pair in range(pairs):
            both = [(alone, ["--tracker", "none"]), (watched, watched_flags(trackers))]
            for found, more in both if pair % 2 else reversed(both):
                found.append(trained(model, [*flags, *more]))
        ratios = [b / a for (a, _), (b, _) in zip(alone, watched, strict=True)]
        seconds = [statistics.median(each for each, _ in found) for found in (alone, watched)]
        print(
            f"{model:<10}{alone[0][1]:>7}{1e3 * seconds[0]:>14.3f}{1e3 * seconds[1]:>17.3f}"
            f"{statistics.median(ratios):>9.4f}{min(ratios):>11.4f}{max(ratios):>8.4f}",
            flush=True,
        )
    return 0


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


def trained(model: str, flags: list[str]) -> tuple[float, int]:
    """Seconds of the median step, and the number of steps."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Path(folder) / "run"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "TRACKIO_DIR": str(Path(folder) / "trackio"),
        }
        command = [sys.executable, str(ROOT / model / "train.py"), "--run-dir", str(run), *flags]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        records = [record for record, _ in read_records(run / "metrics.jsonl")]
        steps: list[Any] = [record for record in records if record["event"] == "step"]
        return statistics.median(step["sec_per_step"] for step in steps), steps[-1]["global_step"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
