"""Refuse what make was called with and none of its targets takes: check_make_call.py, before all of them.

Needs no environment, so that nothing is installed before a misspelled variable or value, or a path where
nothing is, is said.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.dotconfig import read_text
from kharness.config.errors import run_command
from kharness.config.make.known_variables import TARGETS
from kharness.config.make.variables import check_call, makes_matrix, options_of_call, output_directory
from kharness.config.places import asked_path, given_data, shown_from

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = check_call(os.environ, ROOT)
    goals = os.environ.get("KHARNESS_GOALS", "").split()
    options = options_of_call(variables, ROOT) if makes_matrix(os.environ) else None
    if options:
        from kharness.matrix.planning.asked_cells import check_planned  # other calls need none of it
        from kharness.matrix.planning.axis_values import check_given_axes

        check_given_axes(options, variables, ROOT)
        check_planned(options, variables, output_directory(variables, ROOT), ROOT)
    if goals and goals[0] in TARGETS:  # the others may be about what it is yet to write
        check_there(goals[0], variables)


def check_there(target: str, variables: Mapping[str, str]) -> None:
    """ConfigError for a run, a configuration or a file that a target reads and that is not there."""
    reads = TARGETS[target].names
    if target == "data":
        given_data(variables)
    elif target == "sweep":
        from kharness.matrix.sweep.ranges import range_file

        _check_readable(range_file(variables))
    elif target == "mergeconfig":
        for name in variables.get("FRAGMENTS", "").split():
            _check_readable(asked_path("FRAGMENTS", name).absolute())
    elif target == "configdiff":
        from kharness.config.make.provenance import configuration_file

        for name in filter(variables.get, "AB"):
            configuration_file(ROOT, name, variables[name])
    elif target == "configwhy":
        if (options := options_of_call(variables, ROOT)) and (symbol := variables.get("SYMBOL")):
            options.option(symbol.removeprefix("CONFIG_"))
    elif {"A", "RUN", "TARGET"} & {*reads}:
        _check_runs(target, "TARGET" if "TARGET" in reads else "RUN", variables)


def _check_readable(path: Path) -> None:
    read_text(path, shown_from(ROOT, path))


def _check_runs(target: str, name: str, variables: Mapping[str, str]) -> None:
    from kharness.runs.latest import asked_folders, asked_place, asked_places, compared_place, latest_link

    output = output_directory(variables, ROOT)
    if target == "compare" or variables.get("A") or variables.get("B"):
        for place in asked_places(variables):
            compared_place(place)
    elif target == "dashboard":
        asked_folders(variables.get("RUN", ""))
    elif variables.get(name) or target not in ("gputop", "prometheus", "watch"):
        if not variables.get(name) and target in ("continue", "test_rerun"):
            from kharness.matrix.planning.begin import refuse_unplanned

            refuse_unplanned(latest_link(variables, output))
        directory = asked_place(variables, output, name=name)
        if target != "continue":  # which may add the cells that it filters
            from kharness.matrix.planning.asked_cells import check_recorded

            check_recorded(directory, variables, takes_cell="CELL" in TARGETS[target].names)


if __name__ == "__main__":
    run_command(main)
