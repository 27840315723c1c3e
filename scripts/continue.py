"""Finish what was interrupted: continue.py [RUN=dir (default: the newest)] [SEED=1..10] [FILTER=…] …"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.matrix.more_seeds import check_whole, seeds_of, with_more_seeds
from kharness.matrix.planning.begin import refuse_unplanned
from kharness.matrix.planning.settings import with_command_line
from kharness.matrix.resume import continue_found
from kharness.matrix.selected_runs import find, locate
from kharness.report.report import check_judging, page_line, told_report
from kharness.runs.latest import asked_directory, latest_link, with_lasting_baseline
from kharness.runs.lock import RunnerLock

ROOT = Path(__file__).resolve().parent.parent
SEED = "CONFIG_SEED"


def main(argv: Sequence[str]) -> int:
    """Return the exit code of test_matrix, or of train for a single training; 2 if another runner holds
    it.
    """
    variables = with_lasting_baseline(make_variables.given(argv, os.environ, "continue", root=ROOT))
    output = make_variables.output_directory(variables, ROOT)
    if not variables.get("RUN"):
        refuse_unplanned(latest_link(variables, output))
    directory, chosen = asked_directory(variables, output), variables.get("FILTER", "")
    seeds: list[str] = []
    if SEED in variables:
        check_whole(locate(directory))
        seeds = seeds_of(variables.pop(SEED), ROOT)
    found = find(directory, ROOT, "" if seeds else chosen)  # which may be about cells that are yet to come
    settings = with_command_line(found.settings, variables, ROOT)
    with RunnerLock(found.directory):
        if found.kind == "matrix":
            check_judging(found.directory, variables)
        if seeds:
            with_more_seeds(found.directory, seeds, ROOT, settings)
            found = find(directory, ROOT, chosen)
        report = partial(told_report, given=variables)
        return continue_found(found, settings, root=ROOT, report=report, page=lambda run: [page_line(run)])


if __name__ == "__main__":
    run_command(main)
