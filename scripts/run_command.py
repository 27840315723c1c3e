"""Run the COMMAND of a model outside of the tree, recorded: run_command.py --run-dir DIR [--from-scratch].

In the place of a train.py: it becomes the bridge around the command, whose placeholders are the options.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kharness.config.config_py import read_values
from kharness.config.errors import run_command
from kharness.config.places import CONFIG_PY, home
from kharness.config.project_name import run_name
from kharness.matrix.planning.template import RUN_DIR, RUN_NAME, Template, option_texts
from kharness.runs.command import BRIDGE
from monitoring.follower import enabled_followers

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    """`argv` is what a launch gives to every training."""
    _, given, *others = argv
    directory = Path(given).absolute()
    values = read_values(directory / CONFIG_PY)
    places = {RUN_DIR: str(directory), RUN_NAME: directory.name}
    words, _ = Template.configured(values).filled({**option_texts(values), **places})
    options = [
        "--name",
        run_name(values, ROOT, datetime.now(UTC)),
        "--project",
        str(values["TRACKER_PROJECT"]),
    ]
    options += ["--cwd", str(home(ROOT)), "--config", json.dumps(dict(values))]
    options += ["--trackers", json.dumps(enabled_followers(values))]
    options += ["--gpu-monitor"] * bool(values.get("GPU_MONITOR"))
    options += ["--machine-monitor"] * bool(values.get("MACHINE_MONITOR"))
    command = [sys.executable, "-m", BRIDGE, str(directory), *options, *others, "--", *words]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    run_command(main)
