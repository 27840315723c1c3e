"""How monitoring is used, in three examples.

    python scripts/monitor_training_example.py --mode monitor      # samples and their statistics
    python scripts/monitor_training_example.py --mode dashboard    # the terminal dashboard
    python scripts/monitor_training_example.py --mode train        # a simulated training with the callback

The training of the third is simulated: its losses are made up, and it says so. What is written about GPUs is
measured, or null.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
from monitoring.gpu_monitor import __main__ as gpu_monitor_command
from monitoring.gpu_monitor.arguments import gpu_indices


def monitor(gpu: str, samples: int, log_dir: Path) -> int:
    """Run `python -m monitoring.gpu_monitor` with these settings; return 2 without a GPU."""
    return gpu_monitor_command.main(["--gpu", gpu, "--samples", str(samples), "--log-dir", str(log_dir)])


def dashboard(gpu: str) -> int:
    """Run `python -m monitoring.gpu_dashboard` with this setting."""
    from monitoring import gpu_dashboard

    return gpu_dashboard.main(["--gpu", gpu])


def train(gpu: str, num_steps: int, step_seconds: float, log_dir: Path) -> int:
    """A loop with the shape of a training, through the callback."""
    print(f"a SIMULATED training of {num_steps} steps: its losses are made up, only the GPUs are real")
    gpu_monitor = GPUMonitor(gpu_indices(gpu), sample_interval=0.5, log_dir=log_dir)
    callback = TrainingMonitorCallback(gpu_monitor)
    callback.on_train_begin()
    for step in range(num_steps):
        callback.on_step_begin()
        time.sleep(step_seconds)
        loss = 2.3 * math.exp(-step / (0.3 * num_steps))
        callback.on_step_end(
            step=step,
            epoch=step / num_steps,
            loss=loss,
            lr=1e-3 * (1 - step / num_steps),
            grad_norm=2 * loss,
            throughput=64 / step_seconds if step_seconds else None,
        )
        if (step + 1) % max(1, num_steps // 5) == 0:
            print(f"simulated step {step + 1} of {num_steps}: loss {loss:.3f}", flush=True)
    callback.on_train_end()
    for line in gpu_monitor_command.statistics_lines(gpu_monitor):
        print(line)
    for path in [*gpu_monitor.gpu_files, gpu_monitor.training_file]:
        if path is not None:
            print(path)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """0, or what the mode's command returns."""
    parser = argparse.ArgumentParser(description="Examples of GPU monitoring.")
    parser.add_argument("--mode", choices=("monitor", "dashboard", "train"), default="monitor")
    parser.add_argument("--gpu", default="all", metavar="N|N,N|all")
    parser.add_argument("--samples", type=int, default=10, help="of --mode monitor")
    parser.add_argument("--steps", type=int, default=50, help="of --mode train")
    parser.add_argument("--step-seconds", type=float, default=0.1, help="how long a simulated step takes")
    parser.add_argument("--log-dir", type=Path, default=Path("gpu_logs"))
    given = parser.parse_args(argv)
    if given.mode == "monitor":
        return monitor(given.gpu, given.samples, given.log_dir)
    if given.mode == "dashboard":
        return dashboard(given.gpu)
    return train(given.gpu, given.steps, given.step_seconds, given.log_dir)


if __name__ == "__main__":
    sys.exit(main())
