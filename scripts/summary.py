"""Write summary.{json,csv,md} again from run directories: summary.py [RUN=dir]; default: the newest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config import make_variables
from kharness.config.errors import run_command
from kharness.report.report import asked_directory, report_lines, shown
from kharness.report.summary import collect
from kharness.report.writers import write_summary

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ)
    summary = collect(asked_directory(variables, make_variables.output_directory(variables, ROOT)))
    paths = write_summary(summary)
    print(f"{summary.title}:")
    print("\n".join([*report_lines(summary), *(shown(path) for path in paths)]))


if __name__ == "__main__":
    run_command(main)
