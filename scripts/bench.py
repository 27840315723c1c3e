"""Run the benchmarks, each in a process of its own (`make bench`, `make bench ONLY=log_step`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from kharness.config.errors import KharnessError, run_command
from kharness.config.refused import did_you_mean
from monitoring.errors import print_error

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def main(argv: Sequence[str]) -> int:
    """0 when every benchmark ran; what they measure is printed and judged by the reader."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    only = os.environ.get("ONLY", "")
    if only and only not in names:
        hint = f"{did_you_mean(only, names)} known: {', '.join(names)}".lstrip()
        raise KharnessError(f"ONLY={only} is not a benchmark", hint=hint)
    failed = []
    for name in [only] if only else names:
        print(f"== {name}", flush=True)
        if run(name, sys.stdout.buffer) != 0:
            failed.append(name)
    if failed:
        print_error(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(name: str, output: BinaryIO) -> int:
    """The exit code of a benchmark; what it prints passes through here, so that no lost reader ends it."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        while printed := os.read(process.stdout.fileno(), 65536):
            output.write(printed)
            output.flush()
    return process.returncode


if __name__ == "__main__":
    run_command(main)
