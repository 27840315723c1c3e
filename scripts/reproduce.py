"""Run a past run again and say whether it is bit-equal: reproduce.py [RUN=dir] [ANYWAY=y] [TRACKER=…].

Without RUN the newest; of a matrix or a sweep its first complete run.

Exit codes: 0 bit-equal, 3 not, 2 if the run cannot be rebuilt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.matrix.commands.reproduce import reproduce_command
from kharness.matrix.planning.single import withdraw_refused
from kharness.matrix.reproduce.reproduce import ReproducedRun, model_code, prepare_again
from kharness.matrix.reproduce.revision import code_of
from kharness.matrix.reproduce.verdict import has_ended_alike, say_not_compared, say_verdict
from kharness.matrix.selected_runs import complete_run
from kharness.matrix.supervise_single import supervise_single
from kharness.runs.command import read_command
from kharness.runs.control_changes import EXPECTED_DATA
from kharness.runs.latest import asked_directory, shown
from kharness.runs.launch import Slot
from kharness.runs.lock import RunnerLock
from monitoring.journal.bit_equal import differences_here, machine_differences

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Rebuild, run, compare."""
    variables = make_variables.given(argv, os.environ, "reproduce", root=ROOT)
    anyway, trackers = make_variables.is_yes(variables, "ANYWAY"), variables.get("TRACKER", "none")
    asked = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    directory = complete_run(asked, ROOT)
    if read_command(directory) is not None:
        return reproduce_command(directory, trackers=trackers, anyway=anyway)
    past = ReproducedRun.read(directory)
    past.refuse_foreign()
    with (
        code_of(past.git, ROOT, anyway=anyway, run=past.directory) as code,
        model_code(past, anyway=anyway) as model,
    ):
        say("\n".join([code.description, *[model] * bool(model)]))
        for difference in differences_here(past.start):
            say(f"differs: {difference}")
        if not past.has_config:
            say("config: that of the start record, for .config is gone")
        launch = prepare_again(past, code, root=ROOT, trackers=trackers, anyway=anyway)
        say(f"run: {shown(launch.directory)}")
        # The training and its agent take the code from there, and as many threads as the run had.
        before = [path for path in [os.environ.get("PYTHONPATH")] if path]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(code.root / "lib"), *before])
        os.environ.update(Slot(threads=past.threads).environment())
        data = past.start.get("data_sha256")
        if isinstance(data, str) and not anyway:
            os.environ[EXPECTED_DATA] = data
        with RunnerLock(launch.directory):
            exit_code = supervise_single(launch, root=ROOT)
    if withdraw_refused(launch.directory):
        print(f"{shown(launch.directory)} is removed: nothing was trained", file=sys.stderr)
        return exit_code
    return verdict(past, launch.directory, exit_code)


def verdict(past: ReproducedRun, again: Path, exit_code: int) -> int:
    """Say what is equal and what is not."""
    if not has_ended_alike(past.directory, again, exit_code):
        return say_not_compared(past.directory, again, exit_code)
    for difference in machine_differences(past.directory, again):
        say(f"differs: {difference}")
    if past.unpromised:
        say(f"not promised: {past.unpromised}")
    return say_verdict(past.directory, again)


if __name__ == "__main__":
    run_command(main)
