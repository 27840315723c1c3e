"""The time that a running or interrupted matrix still takes: estimate.py [RUN=dir] [JOBS=n]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.matrix.overview import estimate_lines, look
from kharness.matrix.planning.settings import with_command_line
from kharness.matrix.selected_runs import find
from kharness.matrix.supervise import expected_seconds, num_jobs
from kharness.runs.latest import asked_directory
from kharness.runs.status import RUNNING

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ, "estimate", root=ROOT)
    directory = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    found = find(directory, ROOT, variables.get("FILTER", ""))
    overview = look(found, half_done=True)
    running = len(overview.having(RUNNING)) if overview.holder else 0
    jobs = running or num_jobs(with_command_line(found.settings, variables, ROOT))
    expected = expected_seconds(found.launches, found.directory.parent)
    say("\n".join(estimate_lines(overview, expected, jobs)))


if __name__ == "__main__":
    run_command(main)
