"""How long the dashboard takes to show something, and to show GPUs, beside nvitop: in pairs, under one load.

python benchmarks/first_paint.py [PAIRS]

Each starts in a terminal of its own on 8 SIMULATED GPUs (tests/simulated_nvml; needs gcc), in turns, with
nothing else to do and beside twice as many busy loops as there are processors. Shown is when the first signs
are painted and when the first GPU's power stands there; medians of PAIRS (10). nvitop is no requirement of
this project: it is measured where `nvitop` is on PATH, or where NVITOP= names it (pip install nvitop).
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pexpect

ROOT = Path(__file__).resolve().parent.parent
NUM_GPUS = 8
SIZE = (40, 120)  # lines and columns
PAIRS = 10
SIMULATED_NVML = ROOT / "tests/simulated_nvml/simulated_nvml.py"
BUSY = "while :; do :; done"
LIMIT = "711"  # watts, in the only place where this number is shown

# What a terminal is told before there is anything to see: styles, places, modes and titles.
CONTROL = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])|[\r\n\s]"


def simulated(folder: Path) -> dict[str, str]:
    """The variables with which a process sees eight busy GPUs, each with a process on it."""
    subprocess.run([sys.executable, SIMULATED_NVML, folder], check=True, stdout=subprocess.DEVNULL)
    lines = [f"gpus {NUM_GPUS}", "all utilization 20~95/9", "all memory_used 30000~60000/23"]
    lines += ["all power 200~650/7", "all temperature 50~85/31", f"all power_limit {LIMIT}"]
    lines += [f"gpu {gpu} process {os.getpid()} {20000 + gpu} 50" for gpu in range(NUM_GPUS)]
    (folder / "gpus.txt").write_text("\n".join(lines) + "\n")
    return {"LD_LIBRARY_PATH": str(folder), "SIMULATED_NVML": str(folder / "gpus.txt")}


def first_paint(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start of a program to its first sign, and to a GPU's power."""
    terminal = {**os.environ, "TERM": "xterm-256color", **environment}
    begun = time.perf_counter()
    picture: float | None = None
    shown = b""
    spawned: pexpect.spawn[bytes] = pexpect.spawn(
        command[0], list(command[1:]), env=terminal, dimensions=SIZE
    )
    with closing(spawned) as process:
        while LIMIT.encode() not in shown:
            shown += process.read_nonblocking(65536, timeout=120)
            if picture is None and re.sub(CONTROL, b"", shown):
                picture = time.perf_counter() - begun
        found = time.perf_counter() - begun
        process.send("q")
        process.expect(pexpect.EOF, timeout=120)
    assert picture is not None
    return picture, found


@contextmanager
def load(count: int) -> Iterator[None]:
    """Run so many busy loops."""
    loops = [subprocess.Popen(["sh", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(argv: Sequence[str]) -> int:
    pairs = int(argv[0]) if argv else PAIRS
    contestants = {"kharness": [sys.executable, "-m", "monitoring.gpu_dashboard", "--gpu", "all"]}
    nvitop = os.environ.get("NVITOP") or shutil.which("nvitop")
    if nvitop is None:
        print("nvitop is not on PATH: pip install nvitop, or NVITOP=/path/to/nvitop")
    else:
        contestants["nvitop"] = [nvitop]
    print(f"{NUM_GPUS} SIMULATED GPUs, {pairs} pairs   first sign, s    ratio   first GPU, s    ratio")
    with tempfile.TemporaryDirectory() as temporary:
        environment = simulated(Path(temporary))
        for loops in (0, 2 * (os.cpu_count() or 1)):
            with load(loops):
                runs = [
                    {name: first_paint(command, environment) for name, command in contestants.items()}
                    for _ in range(pairs)
                ]
            for name in contestants:
                report(name, loops, runs)
    return 0


def report(name: str, loops: int, runs: Sequence[dict[str, tuple[float, float]]]) -> None:
    """A line of medians; the ratio is the median of those of the pairs, to nvitop."""
    columns = []
    for place in (0, 1):
        median = statistics.median(run[name][place] for run in runs)
        ratio = "-"
        if "nvitop" in runs[0]:
            ratio = f"{statistics.median(run[name][place] / run['nvitop'][place] for run in runs):.2f}"
        columns.append(f"{median:15.2f} {ratio:>8}")
    print(f"{name:<12} {f'{loops} busy loops' if loops else 'quiet':<16}{''.join(columns)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
