"""Refuse what make was called with and none of its targets reads: check_make_call.py, before all of them.

Needs no environment, so that nothing is installed before a misspelled variable is said.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make.variables import check_call

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> None:
    check_call(os.environ, ROOT)


if __name__ == "__main__":
    run_command(main)
