"""`make defconfig` beside Debian's kconfig-conf on the same tree: medians over paired runs, and their ratio.

python benchmarks/defconfig.py [RUNS]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRESET = "defconfigs/default"


def commands(folder: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The timed commands: name, command and additions to the environment; all write into `folder`."""
    conf, make = shutil.which("kconfig-conf"), shutil.which("make")
    ours = [sys.executable, "scripts/kconfig.py", "defconfig", f"O={folder}/script"]
    timed: dict[str, tuple[list[str], dict[str, str]]] = {"kconfig.py defconfig": (ours, {})}
    # Only where the set-up is done: its time is not what is asked about.
    if make and subprocess.run([make, "-q", ".venv/.ready"], cwd=ROOT, check=False).returncode == 0:
        timed["make defconfig"] = ([make, "-s", "defconfig", f"O={folder}/make"], {})
    if conf:
        theirs = [conf, "-s", f"--defconfig={PRESET}", "Kconfig"]
        timed["kconfig-conf --defconfig"] = (theirs, {"KCONFIG_CONFIG": f"{folder}/conf"})
    else:
        print("kconfig-conf is not installed: apt-get install kconfig-frontends")
    timed["python -c pass"] = ([sys.executable, "-c", "pass"], {})
    return timed


def seconds(command: list[str], extra: dict[str, str], folder: Path) -> float:
    """Wall-clock time of one run that has everything to write."""
    for old in ("script", "make"):
        shutil.rmtree(folder / old, ignore_errors=True)
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env={**os.environ, **extra}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main(argv: list[str]) -> int:
    """Time every command in turn, so that the load of the machine meets all of them alike."""
    runs = int(argv[0]) if argv else 30
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timed = commands(folder)
        times: dict[str, list[float]] = {label: [] for label in timed}
        for run in range(runs + 1):
            for label, (command, extra) in timed.items():
                took = seconds(command, extra, folder)
                if run:  # the first round fills the caches
                    times[label].append(took)
    reference = times.get("kconfig-conf --defconfig")
    print(f"{'':26} median ms   min ms   x kconfig-conf   ({runs} paired runs)")
    for label, ours in times.items():
        ratio = statistics.median(a / b for a, b in zip(ours, reference, strict=True)) if reference else None
        shown = f"{ratio:15.1f}" if ratio is not None else f"{'-':>15}"
        print(f"{label:26} {statistics.median(ours) * 1e3:9.1f} {min(ours) * 1e3:8.1f} {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
