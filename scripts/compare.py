"""Compare two runs, matrices or variants: compare.py A=dir B=dir [--fail-on-regression] [NAME=value…].

A and B are runs, matrices, or variants of one, as results/latest:OPTIMIZER=sgd. With FAIL_ON_REGRESSION=y
the exit code is 3 if B is worse than A, by more than TOLERANCE if that is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.report.compare import compare, compare_lines
from kharness.report.regression import fails_on_regression, regressions, tolerance_of
from kharness.runs.exit_codes import EXIT_FAILED
from kharness.runs.latest import asked_places
from monitoring.errors import columns_of


def main(argv: Sequence[str]) -> int:
    """0, or 3 with --fail-on-regression (FAIL_ON_REGRESSION=y) when B is worse than A."""
    parser = argparse.ArgumentParser(prog="compare.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fail-on-regression", action="store_true", help="exit 3 if B is worse than A")
    parser.add_argument("assignments", nargs="*", metavar="NAME=value", help="as for make")
    arguments = parser.parse_intermixed_args(argv)
    variables = make_variables.given(arguments.assignments, os.environ, "compare")
    a, b = asked_places(variables)
    tolerance = tolerance_of(variables)
    compared = compare(a, b, variables)
    say("\n".join(compare_lines(compared, columns_of(sys.stdout))))
    if not (arguments.fail_on_regression or fails_on_regression(variables)):
        return 0
    worse = regressions(compared.decisive, tolerance)
    say("\n".join([f"regression: {line}" for line in worse] or ["no regression shown"]))
    return EXIT_FAILED if worse else 0


if __name__ == "__main__":
    run_command(main)
