"""The cost of the dashboard: seconds to its first picture, and share of one core at 2 Hz with 8 GPUs.

python benchmarks/gpu_dashboard.py [SECONDS]

It runs in a terminal of its own, with simulated GPUs (tests/simulated_nvml; needs gcc) whose values all
change at every picture, in 80x24 and 200x60, alone and beside a run whose journal grows. The processor time
is that of the dashboard and of its child, which samples, after the first ten pictures.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pexpect
import psutil

from monitoring import Run

ROOT = Path(__file__).resolve().parent.parent
NUM_GPUS = 8
INTERVAL = 0.5
STARTS = 5


def simulated(folder: Path) -> dict[str, str]:
    """The variables with which a process sees eight busy GPUs."""
    build = [sys.executable, str(ROOT / "tests/simulated_nvml/simulated_nvml.py"), str(folder)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    lines = [f"gpus {NUM_GPUS}", "all utilization 20~95/9", "all memory_used 30000~60000/23"]
    lines += ["all power 200~650/7", "all temperature 50~85/31"]
    lines += [f"gpu {gpu} process {70000 + gpu} {20000 + gpu}" for gpu in range(NUM_GPUS)]
    (folder / "gpus.txt").write_text("\n".join(lines) + "\n")
    return {"LD_LIBRARY_PATH": str(folder), "SIMULATED_NVML": str(folder / "gpus.txt")}


def start(environment: dict[str, str], size: tuple[int, int], *more: str) -> pexpect.spawn[bytes]:
    width, height = size
    command = ["-m", "monitoring.gpu_dashboard", "--gpu", "all", "--interval", str(INTERVAL), *more]
    terminal = {**os.environ, "TERM": "xterm-256color", **environment}
    return pexpect.spawn(sys.executable, command, env=terminal, dimensions=(height, width))


def first_picture(environment: dict[str, str], size: tuple[int, int]) -> tuple[float, float]:
    """Seconds from the start of the process to its first picture, and to the first sample in it."""
    begun = time.perf_counter()
    with closing(start(environment, size)) as process:
        process.expect("q quit")
        picture = time.perf_counter() - begun
        process.expect("GiB used")
        return picture, time.perf_counter() - begun


def share_of_core(environment: dict[str, str], size: tuple[int, int], seconds: float, *more: str) -> float:
    """Percent of one core."""
    with closing(start(environment, size, *more)) as process:
        process.expect("GiB used")
        drain = threading.Thread(target=read_all, args=(process,), daemon=True)
        drain.start()
        time.sleep(10 * INTERVAL)
        watched = psutil.Process(process.pid)
        both = [watched, *watched.children(recursive=True)]
        before, begun = sum(map(cpu_seconds, both)), time.perf_counter()
        time.sleep(seconds)
        used, passed = sum(map(cpu_seconds, both)) - before, time.perf_counter() - begun
    return 100 * used / passed


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def read_all(process: pexpect.spawn[bytes]) -> None:
    """Read it as a terminal does; a full pipe would hold the dashboard up."""
    try:
        while True:
            process.read_nonblocking(65536, timeout=None)
    except (pexpect.EOF, OSError, ValueError):
        return


@contextmanager
def training(directory: Path) -> Iterator[None]:
    """A run that logs a hundred steps a second, with 20,000 behind it."""
    run = Run(directory, name="benchmark", project="benchmark", config={}, agent=False)
    run.start(model={"name": "none"}, training={"num_steps": 10**6, "steps_per_epoch": 1000})
    over = threading.Event()

    def log() -> None:
        step = 0
        while not over.is_set():
            step += 1
            run.log_step(step, train_loss=1 / step, lr=1e-3, grad_norm=1.0, samples_per_sec=float(step % 97))
            if step > 20_000:
                over.wait(0.01)

    thread = threading.Thread(target=log)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        run.finish()


def main(argv: Sequence[str]) -> int:
    seconds = float(argv[0]) if argv else 20.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = simulated(folder)
        for size in ((80, 24), (200, 60)):
            starts = [first_picture(environment, size) for _ in range(STARTS)]
            picture, sample = (statistics.median(times) for times in zip(*starts, strict=True))
            alone = share_of_core(environment, size, seconds)
            with training(folder / f"run{size[0]}"):
                beside = share_of_core(environment, size, seconds, "--run", str(folder / f"run{size[0]}"))
            print(
                f"{size[0]}x{size[1]}: first picture after {picture:.2f} s, first sample after"
                f" {sample:.2f} s; {alone:.2f} % of a core, with a run {beside:.2f} %"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
