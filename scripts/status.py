"""How far a matrix or a run is: status.py [RUN=dir] [FILTER=…]; default: the newest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.matrix.overview import look, status_lines
from kharness.matrix.planning.begin import what_is_unplanned
from kharness.matrix.selected_runs import find
from kharness.runs.latest import asked_directory, latest_link, shown

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ, "status", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    unplanned = None if variables.get("RUN") else what_is_unplanned(latest_link(variables, output))
    directory = asked_directory(variables, output)
    found = find(directory, ROOT, variables.get("FILTER", ""), only_look=True)
    if unplanned is not None:
        say(f"note: {unplanned}")
    say("\n".join(status_lines(look(found), shown(found.directory))))


if __name__ == "__main__":
    run_command(main)
