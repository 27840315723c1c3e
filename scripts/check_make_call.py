"""Refuse what make was called with and none of its targets takes: check_make_call.py, before all of them.

Needs no environment, so that nothing is installed before a misspelled variable or value is said.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make.known_variables import OUTSIDE
from kharness.config.make.variables import check_call, known_options, makes_matrix

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    variables = check_call(os.environ, ROOT)
    if makes_matrix(os.environ) and OUTSIDE not in variables:
        from kharness.matrix.planning.axis_values import check_given_axes  # other calls need none of it

        check_given_axes(known_options(ROOT, ROOT), variables)


if __name__ == "__main__":
    run_command(main)
