"""The cost to a training of everything that watches it. Run by `make bench ONLY=everything_on`.

Pairs of the same training on the CPU, one thread: with nothing but its journal, and with GPU and machine
monitoring, every tracker that is installed, timers on every rank, verbose logging at its highest level,
Prometheus, control and all alert rules. Two things are compared:

- `of the training`: CPU time of the training's thread in what its steps do beside the model's work, medians
  over all steps and over the runs, and how much more that is, as a share of the median step. It is the same
  on a machine that has other things to do. What comes once a second is in the mean, which follows.
- `ratio`: the median steps (`sec_per_step` of records). Here the agent shows, a process of its own at low
  priority, wherever cores, caches and memory are shared; its first seconds go into importing trackers.

Two trainings a moment apart may differ by a tenth on a machine whose speed varies. So what runs beside a
training is then stopped and continued (SIGSTOP, SIGCONT) every WINDOW seconds within one training, and the
median step of each window in which it ran is compared with those before and after, in which it did not:
`beside`, the median of these ratios with the 95 % interval of a median (order statistics, Conover 1999). The
agent has twice its work to do in the windows in which it runs. The shorter the windows, the less has the
machine's speed changed between neighbors, and the more of them there are.

`slower` is both together, how much longer a step is: `more, of a step` (of the mean step, with what comes
once a second) and what `beside` is above 1.

    python benchmarks/everything_on.py [PAIRS [WINDOWS]]
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import json
import math
import os
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from monitoring import read_records

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 7
# Windows with and as many without what runs beside a training, seconds of each, and seconds before them, in
# which agents import their trackers.
WINDOWS = 300
WINDOW = 0.5
BEGINNING = 12.0
# Seconds at both ends of a window whose steps do not count: processes stop and continue in them.
EDGE = 0.01
# Model -> flags of a training of some seconds.
TRAININGS = {
    "lenet5": ["--dataset", "mnist-subset", "--num-epochs", "6"],
    "gpt2": ["--batch-size", "16", "--max-steps", "100", "--eval-interval", "100"],
}
# The same, stopped when it has been measured.
LONG_TRAININGS = {
    "lenet5": ["--dataset", "mnist-subset", "--num-epochs", "10000"],
    "gpt2": [
        *("--batch-size", "16", "--num-epochs", "10000"),
        *("--max-steps", "100000", "--eval-interval", "100000"),
    ],
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
    pairs, windows = (*map(int, argv), *(PAIRS, WINDOWS)[len(argv) :])
    trackers = [name for name in TRACKERS if importlib.util.find_spec(name)]
    print(f"{pairs} pairs, 1 thread, torch {torch.__version__}; trackers: {', '.join(trackers)}")
    print(
        f"{'model':<8}{'steps':>6}{'alone, ms':>11}{'everything':>12}{'ratio':>8}"
        f"{'of the training, us':>23}{'more, of a step':>17}{'mean':>8}"
    )
    more: dict[str, float] = {}
    for model, flags in TRAININGS.items():
        alone: list[Trained] = []
        watched: list[Trained] = []
        for pair in range(pairs):
            both = [(alone, ["--tracker", "none"]), (watched, watched_flags(trackers))]
            for found, watching in both if pair % 2 else reversed(both):
                found.append(trained(model, [*flags, *watching]))
        few, many = middle(alone), middle(watched)
        ratio = statistics.median(b.step / a.step for a, b in zip(alone, watched, strict=True))
        more[model] = (many.mean_hooks - few.mean_hooks) / few.step
        print(
            f"{model:<8}{few.num_steps:>6}{1e3 * few.step:>11.3f}{1e3 * many.step:>12.3f}{ratio:>8.4f}"
            f"{1e6 * few.hooks:>15.0f} -> {1e6 * many.hooks:.0f}"
            f"{100 * (many.hooks - few.hooks) / few.step:>15.2f} %"
            f"{100 * more[model]:>6.2f} %",
            flush=True,
        )
    print(f"{'model':<8}{'windows':>8}{'step, ms':>10}{'beside':>9}   95 %{'slower':>21}   95 %")
    for model, flags in LONG_TRAININGS.items():
        ratios, step = beside(model, [*flags, *watched_flags(trackers)], windows)
        low, high = interval(ratios)
        ratio = statistics.median(ratios)
        slower = [100 * (more[model] + found - 1) for found in (ratio, low, high)]
        print(
            f"{model:<8}{len(ratios):>8}{1e3 * step:>10.3f}{ratio:>9.4f}"
            f"   {low:.4f} to {high:.4f}{slower[0]:>9.2f} %   {slower[1]:.2f} to {slower[2]:.2f}",
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


def command(model: str, folder: Path, flags: list[str]) -> tuple[list[str], dict[str, str]]:
    """This file with the model's name, which trains in a process of its own; and its environment."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "TRACKIO_DIR": str(folder / "trackio"),
    }
    run = ["--run-dir", str(folder / "run"), *flags]
    return [sys.executable, __file__, model, str(folder / "hooks.json"), *run], environment


def trained(model: str, flags: list[str]) -> Trained:
    """To its end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments, environment = command(model, folder, flags)
        done = subprocess.run(
            arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        records = [record for record, _ in read_records(folder / "run" / "metrics.jsonl")]
        hooks = json.loads((folder / "hooks.json").read_text())["hooks"]
    steps: list[Any] = [record for record in records if record["event"] == "step"]
    seconds = statistics.median(step["sec_per_step"] for step in steps)
    return Trained(seconds, steps[-1]["global_step"], statistics.median(hooks), statistics.mean(hooks))


def beside(model: str, flags: list[str], windows: int) -> tuple[list[float], float]:
    """How much longer the median step is in each window, and seconds of the median step without."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments, environment = command(model, folder, flags)
        with subprocess.Popen(
            arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as training:
            journal = folder / "run" / "metrics.jsonl"
            while not journal.exists() or b'"event":"step"' not in journal.read_bytes():
                time.sleep(0.1)
            time.sleep(BEGINNING)
            watchers = watchers_of(folder, training.pid)
            bounds = [time.monotonic()]
            for number in range(2 * windows + 1):
                for watcher in watchers:
                    watcher.send_signal(signal.SIGCONT if number % 2 else signal.SIGSTOP)
                time.sleep(max(0.0, bounds[0] + (number + 1) * WINDOW - time.monotonic()))
                bounds.append(time.monotonic())
            for watcher in watchers:
                watcher.send_signal(signal.SIGCONT)
            if watchers_of(folder, training.pid) != watchers:
                sys.exit(f"{model}: a process that watches has begun or ended meanwhile")
            training.send_signal(signal.SIGTERM)
        began: list[float] = json.loads((folder / "hooks.json").read_text())["began"]
    medians = [
        statistics.median(
            later - earlier
            for earlier, later in itertools.pairwise(began)
            if start + EDGE < earlier and later < end - EDGE
        )
        for start, end in itertools.pairwise(bounds)
    ]
    ratios = [
        2 * medians[number] / (medians[number - 1] + medians[number + 1])
        for number in range(1, len(medians), 2)
    ]
    return ratios, statistics.median(medians[::2])


def watchers_of(folder: Path, training: int) -> list[psutil.Process]:
    """All processes that were started for the run in a folder, and what they have started."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid != training and any(str(folder) in word for word in process.cmdline()):
                found += [each for each in (process, *process.children(recursive=True)) if each not in found]
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """Interval of the median, at least 95 %: between the values that so many lie below and above."""
    below = 0
    while 2 * sum(math.comb(len(values), k) for k in range(below + 1)) <= 0.05 * 2 ** len(values):
        below += 1
    low = max(0, below - 1)
    return sorted(values)[low], sorted(values, reverse=True)[low]


def measure(model: str, found: Path) -> None:
    """Train, in this process, and write the CPU seconds of each step's hooks and when it began."""
    from kharness.training.steps.control import StepControl
    from kharness.training.steps.telemetry import StepTelemetry
    from kharness.training.steps.training import Training

    of_steps: list[float] = []
    began: list[float] = []

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name == "look":  # the first of a step
                of_steps.append(0.0)
                began.append(time.monotonic())
            before = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                of_steps[-1] += time.thread_time() - before

        return call

    for where, name in (
        (StepControl, "look"),
        (StepControl, "apply"),
        (StepTelemetry, "begin_step"),
        (StepTelemetry, "end_step"),
        (Training, "_log_step"),
    ):
        setattr(where, name, timed(name, getattr(where, name)))
    try:
        sys.argv = [str(ROOT / model / "train.py"), *sys.argv[3:]]
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        found.write_text(json.dumps({"hooks": of_steps[5:], "began": began}))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in TRAININGS:
        measure(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
