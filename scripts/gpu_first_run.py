"""Try on a machine with GPUs, in a checkout that `make` has set up, what no machine without one shows.

    scripts/gpu_first_run.sh                        # all steps, at most 40 minutes
    scripts/gpu_first_run.sh machine bits           # some of them
    OUT=DIR scripts/gpu_first_run.sh                # go on where DIR/results.json says that it was left
    DEVICE=cpu scripts/gpu_first_run.sh             # a rehearsal where there is no GPU

Each step has a limit and a result of its own. Exits with 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.training.first_run.steps import BY_NAME, MINUTES, STEPS
from kharness.training.first_run.timed import RESULTS, run_one, run_steps
from monitoring.journal.end_status import FAILED


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_first_run.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"default: {' '.join(BY_NAME)}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all steps; default: %(default)g")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="STEP=SECONDS", help="another than the step's own"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    device = os.environ.get("DEVICE", "cuda")
    if device not in ("cuda", "cpu"):
        raise ConfigError(f"DEVICE={device} is not a device to try", hint="DEVICE=cuda or DEVICE=cpu")
    limits = dict(_limit(text) for text in arguments.limit)
    for name in (*arguments.steps, *limits):
        if name not in BY_NAME:
            raise ConfigError(f"unknown step {name}", hint=f"one of {' '.join(BY_NAME)}")
    steps = [step for step in STEPS if step.name in (arguments.steps or BY_NAME)]
    folder = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="gpu_first_run.")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.one:
        return run_one(steps[0], folder, device)
    results = run_steps(
        steps,
        lambda step: [sys.executable, __file__, step.name, "--one"],
        folder,
        seconds=60 * arguments.minutes,
        limits=limits,
        environment={**os.environ, "OUT": str(folder), "DEVICE": device},
    )
    print(f"\n{folder / RESULTS}, on {device}:")
    for name, found in results.items():
        print(f"{name:8} {found.result:8} {found.seconds:7.1f} s  {found.said}")
    failed = [name for name, found in results.items() if found.result == FAILED]
    print(f"did not hold: {' '.join(failed)}" if failed else f"nothing failed; runs are in {folder}")
    return 1 if failed else 0


def _limit(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    try:
        return name, float(seconds)
    except ValueError:
        raise ConfigError(f"--limit {text} is not a limit", hint="--limit bits=300") from None


if __name__ == "__main__":
    run_command(main)
