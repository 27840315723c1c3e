"""Benchmarks run, as small as they can be: what they call still exists and is called rightly."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from .browser import CHROMIUM
from .conftest import OFFLINE
from .slurm_cluster import missing
from .warm_python import WarmPython

ROOT = Path(__file__).resolve().parent.parent

# Its constants are set before its main function is called with the arguments.
RUN = """
import importlib.util, inspect, json, os, sys
path, constants, arguments = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
sys.argv = [path, *arguments]
sys.path[0] = os.path.dirname(path)
found = importlib.util.spec_from_file_location("benchmark", path)
module = sys.modules["benchmark"] = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
for name, value in constants.items():
    old = getattr(module, name)
    setattr(module, name, {key: old[key] for key in value} if isinstance(old, dict) else value)
sys.exit(module.main(arguments) if inspect.signature(module.main).parameters else module.main())
"""

SMALLEST: Mapping[str, tuple[Mapping[str, object], list[str]]] = {
    # One beside it in all, on two cores, which leaves them to the other tests.
    "agent": (
        {"TRACKERS": ["tensorboard"], "WARM": 0, "SPINNERS": 0.5, "SPIN": "import time; time.sleep(600)"},
        ["0.2", "busy"],
    ),
    "alert_rules": ({}, ["chosen_more"]),
    "bare_loop": (
        {"TRAININGS": ["GPT-2 tiny, 16 x 64 tokens"], "OURS": ["with everything"], "STEPS": 1, "WARM_UP": 1},
        ["cpu", "1"],
    ),
    "bridge": ({"WATCHED": 1, "SETTLED": 0.1, "SECONDS": 0.1, "SHORT": 1, "SHORTEST": 10}, ["1", "10"]),
    "cell_parts": ({"STEPS": 2}, ["1"]),
    "defconfig": ({}, ["1"]),
    "first_paint": ({"BUSY": "exec sleep 600"}, ["1"]),
    "factorial": ({}, ["1", "2x2", "3"]),
    "foretold": (
        {"SIZES": [[2, 3, None, "alike"], [2, 3, 1000, "one x 4"]], "VARIANTS": [2]},
        ["1"],
    ),
    # So few records are behind in neither way.
    "four_sinks": ({"WAYS": ["a process each"]}, ["100", "1"]),
    "gpt2_step": ({"PAIRS": 1, "WARM_UP": 0, "BATCH": 2}, []),
    "gpu_sample": ({"CONTESTANTS": ["kharness, 30 values"], "MOST": 20, "SECONDS": 1}, []),
    "killed_programs": ({}, ["1", "0", "prints", "1"]),
    "killed_slurm": ({"STEPS": 60, "SEEDS": 1}, ["2"]),
    "long_runs": ({}, ["100", "2"]),
    "other_launchers": ({}, ["1", "2"]),
    "plan_matrix": ({}, ["4", "1"]),
    "matrix_page": ({"SEEDS": 2}, ["4", "1"]),
    "pooling": ({}, ["2", "3", "5"]),
    "power_bound": ({"DRAWN": 1000, "RATIOS": [1, 2]}, ["200"]),
    "report_matrix": ({"SEEDS": [5]}, ["4", "30"]),
    "run_pages": ({"LISTED": [10_000], "METRICS": ["train_loss"]}, ["0.001", "1"]),
    "series": ({}, ["2000", "500", "1"]),
    "slurm_matrix": ({"WATCHED": 1}, ["2"]),
    "statistics": ({"VARIANTS": [2]}, ["1", "normal"]),
    "telemetry_timer": ({"CALLS": 10, "ROUNDS": 1}, []),
}
"""Name -> constants, and arguments; of others the arguments are `1`."""

WHOLE = {
    *("everything_on", "launch_cells", "lenet5_epoch", "log_step", "resnet50_step"),
    *("disturbed_slurm", "gpu_dashboard", "many_nodes_slurm", "packed_cells", "run_matrix", "tracker_down"),
    *("undisturbed", "verbose_logging"),
}
"""Whose smallest size is a training or a matrix of them, minutes on a busy machine, or needs a given time."""

ON_SIMULATED_GPUS = {"first_paint", "gpu_sample"}
# Who are given the library of all tests, in place of one that they build.
GIVEN_SIMULATED_GPUS = {"agent", "gpu_sample"}
OF_TRACKERS = {"bridge", "four_sinks"}
IN_A_BROWSER = {"matrix_page", "run_pages"}
ON_SLURM = {"killed_slurm", "slurm_matrix"}
ALL = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


def test_no_size_is_of_a_benchmark_that_is_no_more() -> None:
    assert {*SMALLEST, *WHOLE, *ON_SIMULATED_GPUS, *IN_A_BROWSER, *ON_SLURM} <= {*ALL}


def absent(name: str) -> str:
    """Reason why a benchmark cannot run here, empty where it can."""
    if name in ON_SIMULATED_GPUS and not shutil.which("gcc"):
        return "gcc, which builds the simulated NVML, is not installed"
    if name in IN_A_BROWSER and not CHROMIUM:
        return "Chromium is not installed"
    reason = missing() if name in ON_SLURM else ""
    return reason and f"no Slurm here: {reason}"


@pytest.mark.parametrize("name", [name for name in ALL if name not in WHOLE])
def test_it_runs_and_prints_figures(
    name: str, request: pytest.FixtureRequest, warm_torch: WarmPython, tmp_path: Path
) -> None:
    if reason := absent(name):
        pytest.skip(reason)
    constants, arguments = SMALLEST.get(name, ({}, ["1"]))
    if name in GIVEN_SIMULATED_GPUS and shutil.which("gcc"):
        library, copies = request.getfixturevalue("nvml_library"), tmp_path / "copies.py"
        copies.write_text(f"import shutil, sys\nshutil.copy({str(library)!r}, sys.argv[1])\n")
        constants = {**constants, "SIMULATED_NVML": str(copies)}
    path = str(ROOT / "benchmarks" / f"{name}.py")
    called = ["-c", RUN, path, json.dumps(constants)] if constants else [path]
    warm = request.getfixturevalue("warm_bridge") if name in OF_TRACKERS else warm_torch
    done = warm.run([*called, *arguments], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert any(char.isdigit() for char in done.stdout)
    assert name != "killed_programs" or "killed {'program': 1}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "lightning"])
def test_values_of_a_script_that_is_killed_and_continued_are_there_once(
    kind: str, warm_frameworks: WarmPython
) -> None:
    """Values in event files of trl's own sft.py in two processes of torchrun, and of a Lightning Trainer.

    A process of theirs is killed after the first checkpoints.
    """
    command = [ROOT / "benchmarks" / "killed_programs.py", "1", "0", kind, "1"]
    done = warm_frameworks.run(command, env={**os.environ, **OFFLINE})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.rstrip().endswith(": exact")
