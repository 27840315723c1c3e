"""GPUs and a run, live in this terminal: gputop.py [RUN=dir] [METRIC=name] [THEME=name] [SORT=column] …

RUN is a run or a matrix, shown with the GPUs as it records them, if it does. Without RUN the GPUs are all of
this machine, with the newest run next to them. SIMULATE=4 shows four GPUs that do not exist, and
says so. METRIC is what the run's second graph shows, as the key `n` chooses it; THEME and SORT are what `t`
and `<` `>` choose.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.runs.latest import asked_directory, latest_link
from monitoring import gpu_dashboard
from monitoring.terminal.display.themes import THEMES
from monitoring.terminal.panels.process_table import COLUMNS

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Return the dashboard's exit code; 2 for what cannot be shown."""
    variables = make_variables.given(argv, os.environ, "gputop", root=ROOT)
    options = shown(variables, make_variables.output_directory(variables, ROOT))
    options += chosen("THEME", variables.get("THEME"), THEMES)
    options += chosen("SORT", variables.get("SORT"), COLUMNS)
    if variables.get("METRIC"):
        options += [f"--metric={variables['METRIC']}"]
    if "SIMULATE" in variables:
        options += ["--simulate", number(variables["SIMULATE"])]
    return gpu_dashboard.main(options)


def chosen(name: str, value: str | None, known: Collection[str]) -> list[str]:
    """The dashboard's option of that name, if it is given."""
    if value is None:
        return []
    if value not in known:
        raise ConfigError(f"{name}={value} is unknown", hint=f"one of {', '.join(known)}")
    return [f"--{name.lower()}", value]


def shown(variables: Mapping[str, str], output: Path) -> list[str]:
    """The dashboard's options for RUN=, else for this machine and the newest run."""
    if "RUN" in variables:
        return ["--run", str(asked_directory(variables, output))]
    latest = latest_link(variables, output)  # as a link, so that the next matrix is followed, too
    return ["--gpu", "all", *(["--run", str(latest)] if latest.is_dir() else [])]


def number(text: str) -> str:
    """How many GPUs to simulate."""
    try:
        return str(gpu_dashboard.number_of_gpus(text))
    except ArgumentTypeError:
        known = f"1 to {gpu_dashboard.MOST_SIMULATED}"
        raise ConfigError(f"SIMULATE={text} is not a number from {known}", hint="SIMULATE=4") from None


if __name__ == "__main__":
    run_command(main)
