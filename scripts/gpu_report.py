"""Print how evenly the GPUs of a run or matrix were used, and draw it: gpu_report.py [RUN=dir]."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.report.gpu_report import check_known, draw_cells, gpu_report_lines
from kharness.report.graphs import draw_all, gpu_graphs, warnings_of
from kharness.report.summary import collect
from kharness.report.writing.gpu_tables import with_load
from kharness.runs.latest import asked_directory, shown
from monitoring.counts import counted

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ, "gpu-report", root=ROOT)
    summary = collect(asked_directory(variables, make_variables.output_directory(variables, ROOT)))
    check_known(summary)
    say("\n".join(gpu_report_lines(summary)))
    pictures = [*draw_all(summary, gpu_graphs()), *draw_cells(summary, with_load(summary))]
    for line in warnings_of(summary):
        say(f"warning: {line}")
    folders = list(dict.fromkeys(path.parent for path in pictures))
    if not folders:
        say("no graph: there is no GPU of its own, and one rank")
        return
    others = f" and in graphs/ of {counted(len(folders) - 1, 'run')}" if len(folders) > 1 else ""
    say(f"{counted(len(pictures), 'graph')} in {shown(folders[0])}{others}")


if __name__ == "__main__":
    run_command(main)
