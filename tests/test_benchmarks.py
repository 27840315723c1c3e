"""Benchmarks run, as small as they can be: what they call still exists and is called rightly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Its constants are set before its main function is called with the arguments.
RUN = """
import importlib.util, inspect, json, sys
path, constants, arguments = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
sys.argv = [path, *arguments]
found = importlib.util.spec_from_file_location("benchmark", path)
module = sys.modules["benchmark"] = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
for name, value in constants.items():
    old = getattr(module, name)
    setattr(module, name, {key: old[key] for key in value} if isinstance(old, dict) else value)
sys.exit(module.main(arguments) if inspect.signature(module.main).parameters else module.main())
"""

SMALLEST: Mapping[str, tuple[Mapping[str, object], list[str]]] = {
    "alert_rules": ({}, ["chosen"]),
    "defconfig": ({}, ["1"]),
    "first_paint": ({}, ["1"]),
    "four_sinks": ({}, ["100", "1"]),
    "gpt2_step": ({"PAIRS": 1}, []),
    "gpu_sample": ({"CONTESTANTS": ["kharness, 30 values"], "SECONDS": 1}, []),
    "long_runs": ({}, ["100", "2"]),
    "plan_matrix": ({}, ["4", "1"]),
    "pooling": ({}, ["2", "3", "5"]),
    "power_bound": ({}, ["200"]),
    "report_matrix": ({}, ["4", "30"]),
    "statistics": ({}, ["1", "normal"]),
    "telemetry_timer": ({"CALLS": 10, "ROUNDS": 1}, []),
}
"""Name -> constants, and arguments; of others the arguments are `1`."""

WHOLE = {
    *("cell_parts", "everything_on", "launch_cells", "lenet5_epoch", "log_step", "resnet50_step"),
    *("gpu_dashboard", "run_matrix", "tracker_down", "verbose_logging"),
}
"""Whose smallest size is a training or a matrix of them, minutes on a busy machine, or needs a given time."""


ALL = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


def test_no_size_is_of_a_benchmark_that_is_no_more() -> None:
    assert {*SMALLEST, *WHOLE} <= {*ALL}


@pytest.mark.parametrize("name", [name for name in ALL if name not in WHOLE])
def test_it_runs_and_prints_figures(name: str) -> None:
    constants, arguments = SMALLEST.get(name, ({}, ["1"]))
    path = str(ROOT / "benchmarks" / f"{name}.py")
    called = ["-c", RUN, path, json.dumps(constants)] if constants else [path]
    command = [sys.executable, *called, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert any(char.isdigit() for char in done.stdout)
