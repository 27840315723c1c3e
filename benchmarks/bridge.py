"""The cost of running a program under the bridge, beside the program alone: in pairs.

python benchmarks/bridge.py [PAIRS] [STEPS]

Of a program that prints a date: from `kharness run`, and from a bridge's own command, to that date; CPU
time and memory of the bridge (its agent, a process of its own, left out). How long `kharness --help` takes.
Of a program that computes and prints STEPS (20,000) lines as nanoGPT does: its own CPU time. Then how long a
journal of STEPS records takes to be made of a file of JSON lines. Medians of PAIRS (10), of times of the wall
the least, too. At last the CPU time per second of WATCHED bridges whose programs print a step per second,
once they have run for a minute.

Modules are compiled beforehand, as where a package is installed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PAIRS, STEPS = 10, 20_000
WATCHED, SETTLED, SECONDS = 4, 75.0, 60.0

COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
DATE = ["date", "+%s.%N"]
KHARNESS = [sys.executable, "-m", "kharness"]

PRINTS = """
import resource, sys
for step in range(int(sys.argv[1])):
    x = sum(i * i for i in range(200))
    print(f"iter {step}: loss {1 / (step + 1):.4f}, time 1.00ms")
used = resource.getrusage(resource.RUSAGE_SELF)
print("cpu", used.ru_utime + used.ru_stime)
"""

SLOWLY = """
import time
for step in range(1, 1000):
    print("step", step, "loss", 1 / step, flush=True)
    time.sleep(1)
"""


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    pairs, steps = (*map(int, arguments), *(PAIRS, STEPS)[len(arguments) :])[:2]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        starts: dict[str, list[float]] = {}
        cpu, memory, ratios = [], [], []
        run(place), helped()  # which compiles
        for number in range(pairs):
            started, used, megabytes = dated(place / f"date{number}")
            found = {"kharness run": run(place), "the bridge alone": started, "nothing": since(DATE)}
            for name, seconds in {**found, "kharness --help": helped()}.items():
                starts.setdefault(name, []).append(seconds)
            cpu.append(used)
            memory.append(megabytes)
        for number in range(pairs):  # after the starts, which its agents would hold up
            bare, bridged = printing(None, steps), printing(place / f"prints{number}", steps)
            ratios.append(bridged / bare)
        median = statistics.median
        for name, taken in starts.items():
            what = "takes" if "--help" in name else "starts a program after"
            print(f"{name} {what} {1000 * median(taken):.0f} ms (at least {1000 * min(taken):.0f})")
        print(f"CPU of the bridge         {1000 * median(cpu):6.0f} ms")
        print(f"memory of the bridge      {median(memory):6.1f} MB")
        print(f"CPU of a program that prints {steps} lines: {median(ratios):.3f} of that alone")
        seconds = imported(place, steps)
        print(f"import of {steps} records   {seconds:6.2f} s CPU, {1e6 * seconds / steps:.0f} us per record")
        print(f"CPU of the bridge of a log at 1 Hz {1e3 * watching(place / 'watched'):.3f} ms per second")


def bridging(directory: Path, *command: str) -> subprocess.Popen[bytes]:
    """A bridge that has begun with a program."""
    words = [sys.executable, "-m", "monitoring.bridge", str(directory), "--", *command]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL, env=COMPILED)


def bridge(directory: Path, *command: str) -> tuple[float, float]:
    """Run a program under the bridge; CPU seconds and MB of the bridge and what it waited for."""
    process = bridging(directory, *command)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert not process.returncode
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def dated(directory: Path) -> tuple[float, float, float]:
    """Seconds from the bridge's command to the date that it prints; its CPU seconds and MB."""
    begun = time.time()
    cpu, memory = bridge(directory, *DATE)
    return float((directory / "output.log").read_text()) - begun, cpu, memory


def run(folder: Path) -> float:
    """Seconds from `kharness run` to the date that its program prints."""
    return since([*KHARNESS, "run", "--", *DATE], folder)


def since(command: Sequence[str], folder: Path | None = None) -> float:
    """Seconds from a command to the date that it prints, on a line of its own."""
    begun = time.time()
    printed = subprocess.run(
        command,
        cwd=folder,
        env=COMPILED,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    ).stdout
    return next(float(line) for line in printed.splitlines() if line[0].isdigit()) - begun


def helped() -> float:
    """Seconds that `kharness --help` takes."""
    begun = time.time()
    subprocess.run([*KHARNESS, "--help"], env=COMPILED, stdout=subprocess.DEVNULL, check=True)
    return time.time() - begun


def printing(directory: Path | None, steps: int) -> float:
    """CPU seconds of a program that prints steps, by its own account."""
    command = [sys.executable, "-c", PRINTS, str(steps)]
    if directory is None:
        unbuffered = {**COMPILED, "PYTHONUNBUFFERED": "1"}
        with tempfile.TemporaryFile("w+") as log:
            subprocess.run(command, stdout=log, env=unbuffered, check=True)
            log.seek(0)
            text = log.read()
    else:
        bridge(directory, *command)
        text = (directory / "output.log").read_text()
    return float(text.rpartition("cpu ")[2])


def watching(directory: Path) -> float:
    """CPU seconds of a bridge per second of a program that prints once a second."""
    command = [sys.executable, "-c", SLOWLY]
    processes = [bridging(directory / str(number), *command) for number in range(WATCHED)]
    time.sleep(SETTLED)
    before = sum(cpu_of(process.pid) for process in processes)
    time.sleep(SECONDS)
    used = sum(cpu_of(process.pid) for process in processes) - before
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
    return used / SECONDS / WATCHED


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, by the scheduler's nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def imported(place: Path, steps: int) -> float:
    """CPU seconds to make a run of a file of JSON lines."""
    from monitoring.bridge.importing import import_run

    source = place / "rows.jsonl"
    source.write_text(
        "".join(json.dumps({"step": n, "loss": 1 / n, "lr": 0.1}) + "\n" for n in range(1, steps))
    )
    begun = time.process_time()
    import_run(source, place / "imported", project="p", agent=False)
    return time.process_time() - begun


if __name__ == "__main__":
    main(sys.argv[1:])
