"""Run lint, types and tests, as CI does (`make check`)."""

from __future__ import annotations

import concurrent.futures
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from monitoring.errors import print_error
from monitoring.outside import outside

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# What system_programs.py exits with in CI where a program is missing.
INCOMPLETE = 3


def main(argv: Sequence[str]) -> int:
    """0 when all checks pass; the tests come last, so their closing line ends the output.

    Of a model outside of the tree its tests are all.
    """
    make_variables.given(argv, os.environ, "check", root=ROOT)
    if folder := outside():
        own = [sys.executable, "-P", "-m", "pytest", "-c", os.devnull, str(folder)]
        return subprocess.run(own, cwd=folder, check=False).returncode
    programs = subprocess.run(
        [sys.executable, ROOT / "scripts" / "system_programs.py"], check=False
    ).returncode
    if programs not in (0, INCOMPLETE):
        return programs
    checks: dict[str, list[Path | str]] = {
        "ruff format": [BIN / "ruff", "format", "--check", "--quiet", "."],
        "ruff check": [BIN / "ruff", "check", "--quiet", "."],
        "mypy": [BIN / "mypy"],
    }
    # In a clone as old as its files git reads all of them whenever it is asked for their state, as each
    # run of a test asks it, until it has noted once that they are as they were.
    subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    # pytest prints as it goes; the short checks share its first seconds.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        short = pool.submit(lambda: [timed(name, command) for name, command in checks.items()])
        # Neighbors stay together, so that what a module's tests share is made once. Four workers more than
        # there are cores: a third of the time tests wait for agents, browsers and servers.
        count = len(os.sched_getaffinity(0)) + 4
        worker = [sys.executable, str(ROOT / "tests" / "warm_worker.py"), "worker_imports"]
        workers = ["--tx", f"{count}*popen//python={shlex.join(worker)}", "--dist", "worksteal"]
        tests = subprocess.run(
            [BIN / "pytest", *workers, "-rs", "--durations=10"], cwd=ROOT, check=False
        ).returncode
        failed = [name for name, code in short.result() if code != 0] + (["pytest"] if tests else [])
        failed += [] if programs == 0 else ["what the tests need"]
    if failed:
        print_error(f"failed: {', '.join(failed)}")
        return 1
    print("all checks passed: " + ", ".join([*checks, "pytest"]))
    return 0


def timed(name: str, command: list[Path | str]) -> tuple[str, int]:
    """Run one check and print its output as one block."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    verdict = "passed" if done.returncode == 0 else "FAILED"
    print(f"check: {name} {verdict} in {time.monotonic() - start:.0f} s\n{done.stdout}", end="", flush=True)
    return name, done.returncode


if __name__ == "__main__":
    run_command(main)
