"""The cost of verbose logging to a step of 5 ms, at each level, beside what its document says.

Run by `make bench ONLY=verbose_logging`. Each measurement is a process of its own. The steps multiply
matrices on one core, in turns with a callback whose hooks do nothing and with ours: their code has left
the processor's caches since the last step.

Columns: CPU time of the hooks of a step with a log of the trainer, called in a row, so with warm caches; the
median of the CPU time that the hooks of a step take beyond those that do nothing; what handing over takes
beyond that, twice a second; the share of 5 ms that these two are; what a tenth of the document's
figure allows; what one log of the trainer takes, which there is every `logging_steps`; CPU time of the
writer, in per cent of a core.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from monitoring.verbose_logging.channel import FLUSH_EVERY

STEP_SECONDS = 0.005
STEPS = 150

LOGS = {"loss": 0.1234567, "learning_rate": 1e-4, "grad_norm": 1.2345, "epoch": 0.5}
REPEATS = 3

# A tenth of the document's CPU overhead, in per cent of a step.
ALLOWED = {"low": 0.1, "medium": 0.2, "high": 0.3, "ultra": 0.5}


def main() -> None:
    """Measure each level and print the table."""
    columns = ("us in a row", "us a step", "us handing over", "share", "allowed", "us a log", "writer")
    print(f"{'level':<8}" + "".join(f"{column:>16}" for column in columns))
    for level, allowed in ALLOWED.items():
        found = [measured_apart(level) for _ in range(REPEATS)]
        of = {key: statistics.median(one[key] for one in found) for key in found[0]}
        share = of["step"] / STEP_SECONDS + of["handing"] / FLUSH_EVERY
        cells = (
            f"{of['row'] * 1e6:.1f}",
            f"{of['step'] * 1e6:.1f}",
            f"{of['handing'] * 1e6:.1f}",
            f"{100 * share:.2f} %",
            f"{allowed} %",
            f"{of['log'] * 1e6:.1f}",
            f"{100 * of['writer']:.1f} %",
        )
        print(f"{level:<8}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def measured_apart(level: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, level, folder]
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def measure(level: str, folder: Path) -> dict[str, float]:
    """In the child: seconds of the hooks of a step, of the steps, and of the writer."""
    from monitoring.verbose_logging.hooks import VerboseHooks

    work = calibrated()
    callback = VerboseHooks(level, folder / "verbose_training_logs.jsonl")
    arguments = SimpleNamespace(train_batch_size=8, world_size=1)
    state = SimpleNamespace(global_step=0, epoch=0.0, max_steps=STEPS, num_train_epochs=1)
    callback.on_init_end(arguments, state, None)
    callback.on_train_begin(arguments, state, None)
    callback.flush()
    writer, begun = psutil.Process(callback._channel._pid), time.perf_counter()
    used = sum(writer.cpu_times()[:2])
    quiet: list[tuple[float, float]] = []
    hooks: list[float] = []
    handing: list[float] = []
    logs: list[float] = []
    for _ in range(STEPS):
        quiet.append(step(Nothing(), arguments, state, work))
        due = callback._channel.flush_at
        of_hooks, of_log = step(callback, arguments, state, work)
        if callback._channel.flush_at == due:
            hooks.append(of_hooks)
            logs.append(of_log)
        else:
            handing.append(of_hooks + of_log)
    used = (sum(writer.cpu_times()[:2]) - used) / (time.perf_counter() - begun)
    row = min(in_a_row(callback, arguments, state) for _ in range(20))
    callback.on_train_end(arguments, state, None)
    callback.close()
    nothing, nothing_logged = (statistics.median(values) for values in zip(*quiet, strict=True))
    usual, logged = statistics.median(hooks), statistics.median(logs)
    return {
        "row": row,
        "step": usual - nothing,
        "handing": statistics.median(handing) - usual - logged,
        "log": logged - nothing_logged,
        "writer": used,
    }


def step(callback: Any, arguments: Any, state: Any, work: Callable[[], None]) -> tuple[float, float]:
    """One step: CPU seconds of this thread in its hooks, and in that of the trainer's log."""
    first = time.thread_time()
    callback.on_step_begin(arguments, state, None, model=None, optimizer=None)
    first = time.thread_time() - first
    work()
    second = time.thread_time()
    state.global_step += 1
    state.epoch = state.global_step / STEPS
    callback.on_step_end(arguments, state, None, model=None, optimizer=None)
    second = time.thread_time() - second
    third = time.thread_time()
    callback.on_log(arguments, state, None, logs=LOGS, model=None, optimizer=None)
    return first + second, time.thread_time() - third


def in_a_row(callback: Any, arguments: Any, state: Any) -> float:
    """CPU seconds of the hooks of a step, of a hundred steps without work and without handing over."""
    callback._channel.flush()
    callback._channel.flush_at = math.inf
    begun = time.thread_time()
    for _ in range(100):
        callback.on_step_begin(arguments, state, None, model=None, optimizer=None)
        state.global_step += 1
        callback.on_step_end(arguments, state, None, model=None, optimizer=None)
        callback.on_log(arguments, state, None, logs=LOGS, model=None, optimizer=None)
    return (time.thread_time() - begun) / 100


class Nothing:
    """A callback whose hooks do nothing, as most of those of a trainer."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None: ...


def calibrated() -> Callable[[], None]:
    """About STEP_SECONDS of matrix products."""
    import numpy as np

    matrix = np.random.default_rng(0).random((256, 256))

    def once() -> float:
        before = time.perf_counter()
        matrix @ matrix
        return time.perf_counter() - before

    rounds = max(1, round(STEP_SECONDS / statistics.median(once() for _ in range(50))))

    def work() -> None:
        for _ in range(rounds):
            matrix @ matrix

    return work


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
