"""Print what a run printed: logs.py CELL=name [RUN=dir] [FOLLOW=y]; default: the newest matrix or run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.make.typed import typed_target
from kharness.config.output import reader_is_gone
from kharness.matrix.running.printed_run import Copier
from kharness.matrix.selected_runs import Member, asked_member, find
from kharness.runs.files import OUTPUT_LOG, STATUS_JSON
from kharness.runs.latest import asked_directory, shown
from kharness.runs.standing import standing
from kharness.runs.status import PENDING, RUNNING

ROOT = Path(__file__).resolve().parent.parent

# Seconds between two looks at the log.
FOLLOW_EVERY = 0.1


def main(argv: Sequence[str]) -> None:
    variables = make_variables.given(argv, os.environ, "logs", root=ROOT)
    directory = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    found = find(directory, ROOT, only_look=True)
    member = asked_member(found, variables.get("CELL", ""))
    log = member.launch.directory / OUTPUT_LOG
    follow = make_variables.is_yes(variables, "FOLLOW")
    if not log.is_file() and not follow:
        elsewhere = "the run prints where its program was started"
        reason = "the run was not started" if found.is_startable else elsewhere
        raise KharnessError(
            f"{shown(log)} does not exist: {reason}", hint=f"{typed_target('status')} reports more"
        )
    with Copier(log, sys.stdout.buffer, from_start=True) as copier:
        copier.copy()
        while follow and not reader_is_gone(sys.stdout) and is_under_way(member):
            time.sleep(FOLLOW_EVERY)
            copier.copy()
        copier.copy()


def is_under_way(member: Member) -> bool:
    directory = member.launch.directory
    status = standing(directory).status
    return status == RUNNING or (status == PENDING and (directory / STATUS_JSON).exists())


if __name__ == "__main__":
    run_command(main)
