"""The cost of running a program under the bridge, beside the program alone: in pairs.

python benchmarks/bridge.py [PAIRS] [STEPS]

Of a program that prints a date: from `kharness run`, and from a bridge's own command, to that date; CPU
time and memory of the bridge (its agent, a process of its own, left out). How long `kharness --help` takes.
Of a program that computes and prints STEPS (20,000) lines as nanoGPT does: its own CPU time. Then how long a
journal of STEPS records takes to be made of a file of JSON lines. Medians of PAIRS (10), of times of the wall
the least, too. Then the CPU time per second of WATCHED bridges whose programs print a step per second,
once they have run for a minute, and that of all that `kharness run` has beside a program with ten steps per
second: one that prints them, and one with a SummaryWriter. At last SHORT pairs of a program of a fifth of a
second, its own CPU time under the bridge and alone: the median of the ratios, and its 95 % interval by the
bootstrap.

Modules are compiled beforehand, as where a package is installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy
import psutil

PAIRS, STEPS = 10, 20_000
WATCHED, SETTLED, SECONDS = 4, 75.0, 60.0
SHORT, SHORTEST = 60, 15_000

COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
DATE = ["date", "+%s.%N"]
KHARNESS = [sys.executable, "-m", "kharness"]

# Starts a command from a process of a few MB: the memory that the kernel gives of a child (ru_maxrss) is at
# least that of its parent, whose it shares until it is executed.
MEASURED = """
import os, sys, time
begun = time.time()
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""

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

OFTEN = """
import time
if {writes}:
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter("runs", flush_secs=1)
for step in range(10_000):
    if {writes}:
        writer.add_scalar("loss", 1 / (step + 1), step)
    else:
        print("step", step, "loss", 1 / (step + 1), flush=True)
    time.sleep(0.1)
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
        for what, writes in (("printed", False), ("by a SummaryWriter", True)):
            (place / str(writes)).mkdir()
            parts = beside(place / str(writes), OFTEN.format(writes=writes))
            told = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in parts.items())
            share = sum(parts.values())
            print(f"CPU beside ten steps a second {what}: {share:.3%} of a core; ms per second: {told}")
        short = [paired(place / f"short{number}", is_first=bool(number % 2)) for number in range(SHORT)]
        low, high = interval(short)
        print(f"CPU of a short program: {median(short):.4f} of that alone ({low:.4f} to {high:.4f})")


def bridge_words(directory: Path, *command: str) -> list[str]:
    """The command of a bridge around a program."""
    return [sys.executable, "-m", "monitoring.bridge", str(directory), "--", *command]


def bridge(directory: Path, *command: str) -> tuple[float, float, float]:
    """Run a program under the bridge; when that began, CPU seconds and MB of it and what it waited for."""
    words = [sys.executable, "-I", "-S", "-c", MEASURED, *bridge_words(directory, *command)]
    told = subprocess.run(
        words, env=COMPILED, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout
    begun, cpu, memory = map(float, told.split())
    return begun, cpu, memory


def dated(directory: Path) -> tuple[float, float, float]:
    """Seconds from the bridge's command to the date that it prints; its CPU seconds and MB."""
    begun, cpu, memory = bridge(directory, *DATE)
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
    processes = [
        subprocess.Popen(
            bridge_words(directory / str(number), *command), stderr=subprocess.DEVNULL, env=COMPILED
        )
        for number in range(WATCHED)
    ]
    time.sleep(SETTLED)
    before = sum(cpu_of(process.pid) for process in processes)
    time.sleep(SECONDS)
    used = sum(cpu_of(process.pid) for process in processes) - before
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
    return used / SECONDS / WATCHED


def beside(folder: Path, program: str) -> dict[str, float]:
    """CPU seconds per second of each process that `kharness run` has beside a program that runs on."""
    runner = subprocess.Popen(
        [*KHARNESS, "run", "--", sys.executable, "-c", program],
        cwd=folder,
        env=COMPILED,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(SETTLED)
    before = used_by_parts(runner.pid, program)
    time.sleep(SECONDS)
    after = used_by_parts(runner.pid, program)
    runner.terminate()
    runner.wait()
    return {name: (after[name] - before.get(name, 0.0)) / SECONDS for name in after}


def used_by_parts(runner: int, program: str) -> dict[str, float]:
    """CPU seconds so far of a runner and of what is below it, but for the program."""
    parts = {"runner": cpu_of(runner)}
    for process in psutil.Process(runner).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            # the bridge has the program among its own words, and a copy of it guards it
            if words[1:] != ["-c", program]:
                name = "agent" if any(word.startswith("monitoring.agent") for word in words) else "bridge"
                parts[name] = parts.get(name, 0.0) + cpu_of(process.pid)
    return parts


def paired(directory: Path, *, is_first: bool) -> float:
    """CPU time of a short program under the bridge, by that of it alone; `is_first` says which goes first."""
    used = {
        place: printing(place, SHORTEST) for place in ((directory, None) if is_first else (None, directory))
    }
    return used[directory] / used[None]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of their median, by 10,000 resamples."""
    chosen = numpy.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = numpy.percentile(numpy.median(chosen, axis=1), (2.5, 97.5))
    return float(low), float(high)


def cpu_of(pid: int) -> float:
    """CPU seconds of a process's threads so far, by the scheduler's nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


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
