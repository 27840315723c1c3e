"""Write the report but its graphs again: summary.py [RUN=dir] [BASELINE=…] [NAME=value…].

Without RUN the newest. CONFIG_REPORT_METRIC=…, CONFIG_REPORT_CONFIDENCE=… and CONFIG_REPORT_TARGET=… judge
again by other options than those the matrix was begun with.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.report.graphs import warnings_of
from kharness.report.report import report_lines, told_regressions, write_files
from kharness.report.summary import collect
from kharness.runs.latest import asked_directory, shown

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0; with FAIL_ON_REGRESSION=y 3 if a variant is worse than its BASELINE=, 2 if undecided."""
    variables = make_variables.given(argv, os.environ, "summary", root=ROOT)
    directory = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    summary = collect(directory, variables)
    told, code = told_regressions(summary, variables)
    say("\n".join([f"{summary.title}:", *report_lines(summary), *told]))
    written = write_files(summary)
    say("\n".join([*map(shown, written), *(f"warning: {line}" for line in warnings_of(summary))]))
    return code


if __name__ == "__main__":
    run_command(main)
