"""Run the COMMAND of a model outside of the tree, recorded: run_command.py --run-dir DIR [--from-scratch].

In the place of a train.py: it becomes the bridge around the command, whose placeholders are the options.
"""

from __future__ import annotations

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
from kharness.runs.command import Command, CommandLaunch
from monitoring.follower import enabled_followers

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    """`argv` is what a launch gives to every training."""
    _, given, *others = argv
    directory = Path(given).absolute()
    values = read_values(directory / CONFIG_PY)
    places = {RUN_DIR: str(directory), RUN_NAME: directory.name}
    words, _ = Template.configured(values).filled({**option_texts(values), **places})
    monitors = {"gpu-monitor": "GPU_MONITOR", "machine-monitor": "MACHINE_MONITOR"}
    command = Command(
        words,
        str(home(ROOT)),
        values,
        project=str(values["TRACKER_PROJECT"]),
        trackers=enabled_followers(values),
        monitors=[name for name, symbol in monitors.items() if values.get(symbol)],
    )
    name = run_name(values, ROOT, datetime.now(UTC))
    launch = CommandLaunch(name, directory, ROOT, "", values, others, of=command)
    os.execv(sys.executable, launch.command)


if __name__ == "__main__":
    run_command(main)
