"""Show the samples of one step of a run: inspect_batch.py RUN=dir STEP=n.

Their indices, labels or text and the loss of each, by the newest checkpoint before the step; pictures as a
PNG in the run directory. Computed on the CPU, beside a training that is running, if need be.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kharness.config.config_py import read_values
from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.places import COMMAND, CONFIG_PY
from kharness.matrix.planning.needs import refuse_unmet
from kharness.runs.latest import asked_directory, shown
from kharness.runs.launch import Launch

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """The exit code of the training script, which makes the samples as the training did."""
    variables = make_variables.given(argv, os.environ, "inspect-batch", root=ROOT)
    step = variables.get("STEP", "")
    if not step.isdecimal() or int(step) == 0:
        raise ConfigError(f"STEP={step} is no step", hint="for example STEP=120, from 1 on")
    run = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    config = run / CONFIG_PY
    if not config.is_file():
        raise ConfigError(
            f"{shown(run)} is not a run: it has no {CONFIG_PY}", hint="name a run: RUN=results/NAME"
        )
    values = read_values(config)
    if values.get(COMMAND) or "MODEL" not in values:
        raise ConfigError(f"{shown(run)} is of a program of its own", hint="ask that program for its samples")
    launch = Launch(run.name, run, ROOT, str(values["MODEL"]), values)
    refuse_unmet([launch])
    flags = ["--inspect-step", step, "--device", "cpu", "--num-gpus", "1"]
    return subprocess.run([*launch.command, *flags], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    run_command(main)
