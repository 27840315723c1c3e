"""How much slower a program trains under `kharness run` than alone.

python benchmarks/undisturbed.py [PAIRS [WINDOWS]]

The program takes steps of about 20 ms with torch, in one thread on the CPU, and prints 10 lines a second, or
100. It is run by turns alone, with its output in a file, and under `kharness run`: `under it` are the medians
over PAIRS of two ratios, of CPU time per step by its own account and of the median step.

Two trainings a moment apart differ by more than what is looked for. So all that `kharness run` has beside a
program is also stopped and continued by turns within one training, for WINDOW seconds each; steps while it
ran are compared with those of the windows before and after: `beside it`, the medians over WINDOWS. What runs
beside it has twice its work to do in the windows in which it runs, and looks at the program as often as in a
program's first minute.

Each with the 95 % interval of a median (order statistics).

These intervals are about as wide as what is looked for. What bounds it is how long all that runs beside a
program is on a processor, by the kernel's account in nanoseconds: a program that keeps every processor busy
loses that time divided by their number, one that leaves a processor free loses none of it.
`python benchmarks/undisturbed.py taken` measures that alone, of 100 lines a second, in two minutes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.everything_on import interval  # noqa: E402

PAIRS, WINDOWS, WINDOW = 6, 50, 0.5
# Seconds before the windows, in which an agent imports, and at both ends of one, whose steps do not count.
BEGINNING, EDGE = 8.0, 0.01
STEPS, WARM_UP = 200, 10
# Seconds from its begin in which a program is in its first minute, and later.
FIRST, LATER = (10.0, 55.0), (65.0, 125.0)
LINES = (10, 100)

# Writes when each step ended and the CPU seconds until then, and before that that the first one has.
TRAINS = """
import json, sys, time, torch
batches, steps, rate, result = (*map(int, sys.argv[1:4]), sys.argv[4])
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(64, 256)
ends, printed = [], 0
for step in range(steps):
    for _ in range(batches):
        loss = (model(data) - data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    while printed < step * rate // 50:  # of 50 steps a second
        printed += 1
        print(f"iter {printed}: loss {loss.item():.4f}, time 20.00ms")
    ends.append((time.monotonic(), time.process_time()))
    if step == 0:
        open(result + ".begun", "w").close()
json.dump(ends, open(result, "w"))
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

Step = tuple[float, float]
"""When one has ended, and the CPU seconds that the program had used by then."""


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    if list(arguments) == ["taken"]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print_taken(prepared(Path(folder)), Path(folder))
        return
    pairs, windows = (*map(int, arguments), *(PAIRS, WINDOWS)[len(arguments) :])[:2]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        batches = prepared(place)
        for rate in LINES:
            found: dict[str, list[float]] = {}
            for number in range(pairs):
                turns = [alone, under] if number % 2 else [under, alone]
                seen = {run: run(place, batches, STEPS, rate) for run in turns}
                for what, of in (("CPU under it", cpu_per_step), ("step under it", median_step)):
                    found.setdefault(what, []).append(of(seen[under]) / of(seen[alone]))
            found |= beside(place, batches, rate, windows)
            print(f"{rate} lines a second, steps of {1000 * median_step(seen[alone]):.1f} ms")
            for what, ratios in found.items():
                low, high = interval(ratios)
                told = f"{statistics.median(ratios) - 1:+.2%} ({low - 1:+.2%} to {high - 1:+.2%})"
                print(f"  {what:<15} {told}, {len(ratios)} ratios")


def prepared(place: Path) -> int:
    """Write the program, and return how many batches of it take 20 ms."""
    (place / "train.py").write_text(TRAINS)
    return max(1, round(0.02 / cpu_per_step(alone(place, 1, STEPS, 10))))


def print_taken(batches: int, place: Path) -> None:
    """Print how long what runs beside a program of 100 lines a second is on a processor."""
    runner = begun(place, batches, round(50 * LATER[1]), LINES[-1])
    start, cores = time.monotonic(), os.cpu_count() or 1
    for what, (begin, end) in (("in the first minute", FIRST), ("later", LATER)):
        time.sleep(max(0.0, start + begin - time.monotonic()))
        since, used = time.monotonic(), processor_seconds(place)
        time.sleep(start + end - time.monotonic())
        share = (processor_seconds(place) - used) / (time.monotonic() - since)
        print(
            f"{what}: {1000 * share:.2f} ms per second, {share / cores:.3%} of {cores} processors", flush=True
        )
    runner.wait()


def processor_seconds(place: Path) -> float:
    """How long all that is beside the program has been on a processor (proc_pid_schedstat)."""
    total = 0
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if is_beside(process, place):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def alone(place: Path, *given: int) -> list[Step]:
    """Train with the output in a file."""
    with (place / "output").open("w") as output:
        subprocess.run(program(place, *given), stdout=output, env=ENVIRONMENT, check=True)
    return steps_of(place)


def under(place: Path, *given: int) -> list[Step]:
    """Train under `kharness run`."""
    assert started(place, *given).wait() == 0
    return steps_of(place)


def beside(place: Path, batches: int, rate: int, windows: int) -> dict[str, list[float]]:
    """Ratios of windows in which what is beside a training ran to those around them, in which it did not."""
    steps = round(50 * (BEGINNING + 2 * WINDOW * windows)) + 100
    runner = begun(place, batches, steps, rate)
    time.sleep(BEGINNING)
    others = [each for each in psutil.process_iter(["cwd", "cmdline"]) if is_beside(each, place)]
    turns = []
    try:
        for number in range(2 * windows + 1):
            for process in others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT if number % 2 else signal.SIGSTOP)
            turns.append(time.monotonic())
            time.sleep(WINDOW)
    finally:
        for process in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
    assert runner.wait() == 0
    took = steps_of(place)
    parts = [[step for step in took if at + EDGE < step[0] < at + WINDOW - EDGE] for at in turns]
    return {
        what: [2 * of(ran) / (of(before) + of(after)) for before, ran, after in whole(parts)]
        for what, of in (("CPU beside it", cpu_per_step), ("step beside it", median_step))
    }


def whole(parts: Sequence[list[Step]]) -> Iterator[tuple[list[Step], list[Step], list[Step]]]:
    """Each window in which the others ran, between its neighbors, if all three have steps."""
    for number in range(1, len(parts) - 1, 2):
        before, ran, after = parts[number - 1 : number + 2]
        if min(map(len, (before, ran, after))) > 2:
            yield before, ran, after


def is_beside(process: psutil.Process, place: Path) -> bool:
    """Whether it is of `kharness run` in that folder, and not its program."""
    words = process.info["cmdline"] or []
    return process.info["cwd"] == os.path.realpath(place) and words[1:2] != [str(place / "train.py")]


def program(place: Path, *given: int) -> list[str]:
    return [sys.executable, str(place / "train.py"), *map(str, given), str(place / "steps.json")]


def started(place: Path, *given: int) -> subprocess.Popen[bytes]:
    """The command `kharness run` of a program, which has begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "kharness", "run", "--", *program(place, *given)],
        cwd=place,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def begun(place: Path, *given: int) -> subprocess.Popen[bytes]:
    """The same once the program has done a step."""
    first = place / "steps.json.begun"
    first.unlink()
    runner = started(place, *given)
    while not first.exists():
        time.sleep(0.1)
    return runner


def steps_of(place: Path) -> list[Step]:
    """The steps of the last program, without its first ones."""
    return [(ended, used) for ended, used in json.loads((place / "steps.json").read_text())][WARM_UP:]


def cpu_per_step(steps: Sequence[Step]) -> float:
    return (steps[-1][1] - steps[0][1]) / (len(steps) - 1)


def median_step(steps: Sequence[Step]) -> float:
    return statistics.median(after[0] - before[0] for before, after in itertools.pairwise(steps))


if __name__ == "__main__":
    main(sys.argv[1:])
