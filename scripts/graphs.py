"""Draw the graphs again from run directories: graphs.py [RUN=dir]; default: the newest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.report.graphs import draw_all, warnings_of
from kharness.report.summary import collect
from kharness.runs.latest import asked_directory, shown

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ, "graphs", root=ROOT)
    summary = collect(asked_directory(variables, make_variables.output_directory(variables, ROOT)))
    _ = summary.conclusions  # a BASELINE or a metric that cannot be used is the user's to fix
    pictures = draw_all(summary)
    say("\n".join([*map(shown, pictures), *(f"warning: {line}" for line in warnings_of(summary))]))


if __name__ == "__main__":
    run_command(main)
