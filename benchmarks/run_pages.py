"""The page of runs in Chromium, beside Trackio's dashboard and TensorBoard on the same runs.

python benchmarks/run_pages.py [SCALE [ROUNDS]]

Ten runs of 10,000 steps of five metrics are opened in each of the three in turns, ROUNDS times (3):
milliseconds from opening the address until a chart is there. TensorBoard's counts from when its canvas is
there, which favors it; all servers have been asked once before, but for a single round. Then our page alone
is opened on what its budgets are about: a run of a million steps and a hundred of 100,000 that nobody has
opened, 1,000 and 10,000 runs in the table, ten runs of a million steps at once while another one records once
a second. SCALE, 1 as given, makes all of these smaller.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from monitoring import Run
from monitoring.agent.follow import catch_up
from monitoring.journal.files import JOURNAL

if TYPE_CHECKING:
    from benchmarks.report_matrix import ROOT
else:
    from report_matrix import ROOT

METRICS = ("train_loss", "lr", "grad_norm", "tokens_per_sec", "accuracy")
LISTED = (1000, 10_000)
"""Runs in the table, at full scale."""

# The servers, the browser and the clock.
OPEN = Path(__file__).parent / "in_browser" / "dashboards.py"


def main(argv: list[str]) -> int:
    """Print the tables."""
    scale, rounds = (float(argv[0]) if argv else 1.0), (int(argv[1]) if len(argv) > 1 else 3)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        print(f"{'runs x steps':<18}{'':<14}{'first chart, ms':>16}{'again, ms':>12}{'ratio':>8}")
        runs, steps = max(2, int(10 * min(1.0, scale))), max(10, int(10_000 * scale))
        os.environ["TRACKIO_DIR"] = str(folder / "trackio")
        for number in range(runs):
            directory = folder / "compared" / f"run-{number:03}"
            write_run(directory, steps, number)
            catch_up(directory, {"tensorboard": {}, "trackio": {}})
        compared = opened("compare", folder / "compared", rounds)
        if compared is None:
            return 0
        base = median(compared["kharness"]["first"])
        for who, taken in compared.items():
            first, again = median(taken["first"]), median(taken["again"])
            row = f"{first:>16.0f}{again:>12.0f}{first / base:>8.1f}"
            print(f"{f'{runs} x {steps}':<18}{who:<14}{row}", flush=True)
        long, many = int(1_000_000 * scale), int(100_000 * scale)
        write_run(folder / "long" / "run-0", long, 0)
        copies(folder / "long", max(1, int(10 * scale) - 1))
        write_run(folder / "overlaid" / "run-0", many, 0)
        copies(folder / "overlaid", max(1, int(100 * scale) - 1))
        for listed in LISTED:
            write_run(folder / f"listed-{listed}" / "run-0", 50, 0)
            copies(folder / f"listed-{listed}", int(listed * scale) - 1)
        for what in ("long", "overlaid", *(f"listed-{listed}" for listed in LISTED)):
            found = opened(what.partition("-")[0], folder / what, rounds, seconds=max(1.0, 30 * scale))
            for line, values in (found or {}).items():
                print(f"{what:<18}{line:<46}{median(values):>10.1f}", flush=True)
    return 0


def opened(what: str, folder: Path, rounds: int, *, seconds: float = 0.0) -> dict[str, Any] | None:
    """Return what was measured in the browser; None where that is not installed.

    The load of a server is that of so many `seconds`.
    """
    command = [sys.executable, str(OPEN), what, str(folder), str(rounds), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1])
        if "not installed" in done.stderr:
            return None
        raise SystemExit(1)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_run(directory: Path, steps: int, seed: int) -> None:
    """A finished run; its journal is written as the trainer's is, without a training."""
    chance = random.Random(seed)
    config = {"LEARNING_RATE": 10.0 ** -(seed % 5), "SEED": seed // 5}
    with Run(directory, name=directory.name, project="bench", config=config, agent=False) as run:
        run.start(model={"name": "m"}, training={"num_steps": steps})
        for step in range(1, steps + 1):
            run.log_step(step, **{name: 1 / step + chance.random() for name in METRICS})


def copies(folder: Path, count: int) -> None:
    """The same run under other names."""
    first = folder / "run-0"
    journal, about = (first / JOURNAL).read_bytes(), json.loads((first / "run.json").read_bytes())
    for number in range(1, count + 1):
        directory = folder / f"run-{number}"
        directory.mkdir()
        (directory / JOURNAL).write_bytes(journal)
        config = {"LEARNING_RATE": 10.0 ** -(number % 5), "SEED": number // 5}
        tracking = {**about["tracking"], "name": directory.name}
        own = {**about, "run_id": f"{number:016x}", "config": config, "tracking": tracking}
        own["created"] = time.time()
        (directory / "run.json").write_text(json.dumps(own))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
