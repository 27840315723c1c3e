"""Write the whole report of a run, a matrix or a sweep: report.py [RUN=dir] [PAPER=y] [NAME=value…].

Graphs, then tables and the page that show them, then the page of each run. Without RUN= the newest.
CONFIG_REPORT_METRIC=…, BASELINE=… and their kind judge again by other options than those the matrix was begun
with. PAPER=y adds paper/: tables as LaTeX and Markdown, pictures as PDF and SVG, sources, an appendix.
A=dir B=dir writes the page of a comparison instead, into B's directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.report.compare_page import write_comparison
from kharness.report.errors import ReportError
from kharness.report.graphs import warnings_of
from kharness.report.paper.paper import write_paper
from kharness.report.report import write_everything
from kharness.runs.files import GRAPHS, REPORT_HTML
from kharness.runs.latest import asked_directory, asked_places, shown
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Return 0 once everything is written; what failed is a line `warning: …`."""
    variables = make_variables.given(argv, os.environ, "report", root=ROOT)
    if variables.get("A") or variables.get("B"):
        return _comparison(variables)
    directory = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    summary, written = write_everything(directory, variables)
    own = [path for path in written if path.parent == directory]
    say("\n".join(map(shown, own)))
    graphs = sorted((directory / GRAPHS).glob("*.png"))
    if graphs:
        say(f"{shown(directory / GRAPHS)}: {counted(len(graphs), 'graph')}, each with its numbers as CSV")
    if len(written) > len(own):
        runs = counted(len(written) - len(own), "run")
        say(f"{shown(directory)}/*/{REPORT_HTML}: the page of each, {runs}")
    elif summary.plan:
        say(f"one run: make report RUN={shown(directory / summary.cells[0].name)}")
    if make_variables.is_yes(variables, "PAPER"):
        files = write_paper(summary)
        say(f"{shown(files[0].parent)}: {counted(len(files), 'file')}; its {files[0].name} is yours to edit")
    for line in warnings_of(summary):
        say(f"warning: {line}")
    return 0


def _comparison(variables: Mapping[str, str]) -> int:
    """Write the page of `make compare`."""
    a, b = asked_places(variables)
    if variables.get("RUN") or make_variables.is_yes(variables, "PAPER"):
        raise ReportError(
            "RUN= and PAPER=y are for one run or matrix", hint="leave them out beside A= and B="
        )
    say(shown(write_comparison(a, b, variables)))
    return 0


if __name__ == "__main__":
    run_command(main)
