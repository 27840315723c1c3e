"""Run steps one after the other, each in its own process with a time limit, and record the outcomes.

A step that is killed, or the machine with it, has no result: begun again on the same folder, the steps that
held are not repeated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.end_status import FAILED

RESULTS = "results.json"
OK, SKIPPED = "ok", "skipped"
"""Outcomes of a step, besides FAILED."""

# How long a step that is over its limit has to end by itself.
END_WITHIN = 5.0

# Exit code of a step that could not be tried, as automake's; it leaves a reason as one that failed does.
EXIT_SKIPPED = 77


class StepSkipped(Exception):
    """It cannot be tried here; the message says why."""


class StepFailed(Exception):
    """A check of the first run failed; the message says how."""


@dataclass(frozen=True)
class Step:
    """One thing to try."""

    name: str
    limit: float
    """Seconds."""
    run: Callable[[Path, str], str]
    """Takes a folder and the device (`cuda`, `cpu`), prints what it finds, and returns the gist of it."""
    needs_gpu: bool = False


@dataclass(frozen=True)
class Result:
    """Outcome of a step."""

    result: str
    """OK, FAILED or SKIPPED."""
    seconds: float
    limit: float
    said: str = ""
    """Finding of the step, or why it failed or was skipped."""


def read_results(folder: Path) -> dict[str, Result]:
    """Return the results by step, earlier calls included; empty if the file cannot be read."""
    try:
        found = json.loads((folder / RESULTS).read_text())
        return {name: Result(**result) for name, result in found["steps"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def run_steps(
    steps: Sequence[Step],
    command: Callable[[Step], Sequence[str]],
    folder: Path,
    *,
    seconds: float,
    limits: Mapping[str, float],
    environment: Mapping[str, str],
) -> dict[str, Result]:
    """Those that have not held before, in their order, within so many seconds; returns the results of all.

    `command` is what runs a step in a process, by `run_one`; `limits` are others than the steps' own.
    """
    results, until = read_results(folder), time.monotonic() + seconds
    for step in steps:
        before = results.get(step.name)
        if before is not None and before.result == OK:
            print(f"\n== {step.name}: ok before ({before.seconds:.1f} s): {before.said}", flush=True)
            continue
        left = until - time.monotonic()
        limit = min(limits.get(step.name, step.limit), left)
        if left <= 0:
            found = Result(SKIPPED, 0.0, 0.0, "no time is left")
        else:
            print(f"\n== {step.name} (at most {limit:.0f} s)", flush=True)
            found = _timed(step, command(step), folder, limit, environment)
        print(f"{step.name}: {found.result} ({found.seconds:.1f} s): {found.said}", flush=True)
        results[step.name] = found
        _write(folder, results)
    return {step.name: results[step.name] for step in steps}


def run_one(step: Step, folder: Path, device: str) -> int:
    """The step, in this process; returns its exit code, and leaves in a file what it says."""
    said, code = "", 0
    try:
        if step.needs_gpu and device == "cpu":
            raise StepSkipped("it needs a GPU, and DEVICE is cpu")
        said = step.run(folder, device)
    except StepSkipped as reason:
        said, code = str(reason), EXIT_SKIPPED
    except StepFailed as reason:
        said, code = str(reason), 1
    _said(step, folder).write_text(said)
    return code


def _timed(
    step: Step, command: Sequence[str], folder: Path, limit: float, environment: Mapping[str, str]
) -> Result:
    _said(step, folder).unlink(missing_ok=True)
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code: int | None = process.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    took = time.monotonic() - began
    said = ""
    with suppress(OSError):
        said = _said(step, folder).read_text()
    if code is None:
        return Result(FAILED, took, limit, f"it took more than {limit:.0f} s")
    if code == EXIT_SKIPPED:
        return Result(SKIPPED, took, limit, said)
    return Result(FAILED if code else OK, took, limit, said or f"it ended with {code}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The step, with all that it has left in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN)


def _said(step: Step, folder: Path) -> Path:
    return folder / f"{step.name}.said"


def _write(folder: Path, results: Mapping[str, Result]) -> None:
    content = {"steps": {name: asdict(result) for name, result in results.items()}}
    write_atomically(folder / RESULTS, json.dumps(content, indent=2).encode())
