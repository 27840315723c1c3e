"""Ask a running training for something: control.py RUN=dir CHECKPOINT=1 EVALUATE=1 STOP=1 LR_FACTOR=x ….

All words of one call are one request, which the training applies between two steps, or refuses; its journal
says which, and this waits for that and prints it. Exit codes: 0 all of it is applied, 3 refused, or the
training has ended before, 75 not answered yet, 2 where nothing was sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.errors import ConfigError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.make.typed import typed
from kharness.config.output import say
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import EXIT_FAILED, EXIT_STOPPED
from kharness.runs.latest import asked_directory, shown
from monitoring.agent.wait import is_training
from monitoring.control import (
    DEBOUNCE_SECONDS,
    POLL_SECONDS,
    ControlRequest,
    RequestError,
    path_of,
    send,
    withdraw,
)
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import Record
from monitoring.journal.run_state import read_end
from monitoring.journal.tail import RecordTail

ROOT = Path(__file__).resolve().parent.parent

SOURCE = "make control"
# The training looks every few seconds, between two steps: a long step answers later, and a setting that was
# changed just before waits.
WAIT_SECONDS = DEBOUNCE_SECONDS + 10 * POLL_SECONDS


def main(argv: Sequence[str]) -> int:
    variables = make_variables.given(argv, os.environ, "control", root=ROOT)
    changes = requested(variables)
    run = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    check_running(run)
    # Of what was written before, the end is enough to find the answer after it.
    journal = RecordTail(run / JOURNAL, last_bytes=0)
    list(journal.new())
    try:
        request = send(run, changes, source=SOURCE)
    except RequestError as error:
        name, equals, value = str(error).partition("=")
        raise ConfigError(f"{name.upper()}{equals}{value}", hint="make help has an example") from None
    say(f"run: {shown(run)}")
    return wait_for_answer(journal, request, run)


def requested(variables: Mapping[str, str]) -> dict[str, object]:
    """The words of the request; ConfigError without one, and for what is no number or no yes."""
    words = {
        "log_every": number("LOG_EVERY", variables.get("LOG_EVERY")),
        "lr_factor": number("LR_FACTOR", variables.get("LR_FACTOR")),
        "profile": number("PROFILE", variables.get("PROFILE")),
        "evaluate": yes("EVALUATE", variables.get("EVALUATE")),
        "checkpoint": yes("CHECKPOINT", variables.get("CHECKPOINT")),
        "stop": yes("STOP", variables.get("STOP")),
    }
    found: dict[str, object] = {word: value for word, value in words.items() if value is not None}
    if not found:
        raise ConfigError(
            "nothing is requested",
            hint="CHECKPOINT=1, EVALUATE=1, STOP=1, LR_FACTOR=0.5, LOG_EVERY=100 or PROFILE=20",
        )
    return found


def yes(name: str, text: str | None) -> bool | None:
    """True for 1 and y, None for what is not given; ConfigError for any other text."""
    if text not in (None, "1", "y"):
        raise ConfigError(f"{name}={text} is neither 1 nor y", hint=f"write {name}=1, or leave it out")
    return True if text else None


def number(name: str, text: str | None) -> float | None:
    """Parse a JSON number, None if not given; raise ConfigError for any other text."""
    if text is None:
        return None
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise ConfigError(f"{name}={text} is not a number", hint=f"for example {name}=20") from None


def check_running(run: Path) -> None:
    """MatrixError for what is no run, and for a run that has ended."""
    state = read_end(run / JOURNAL)
    if not state.start:
        raise MatrixError(
            f"{shown(run)} is not a run that has begun",
            hint="name a run: RUN=results/NAME, or one of a matrix's",
        )
    if state.ended:
        raise MatrixError(f"{shown(run)} has ended: {state.status}", hint="name one that is running")
    if not is_training(run):
        raise MatrixError(
            f"the process of {shown(run)} has died", hint=f"{typed('continue', shown(run))} trains the rest"
        )


def wait_for_answer(
    journal: RecordTail, request: ControlRequest, run: Path, *, seconds: float = WAIT_SECONDS
) -> int:
    """Print what the training answers; 3 where it refuses or ends, 75 where it has not answered in time."""
    until = time.monotonic() + seconds
    missing = dict.fromkeys(request.changes)
    while True:
        runs, in_time = is_training(run), time.monotonic() < until  # before the records: its last ones count
        ended = ""
        for record in journal.new():
            if record.get("event") == "end":
                ended = str(record.get("status"))
            if record.get("request") != request.name or record.get("replayed"):
                continue
            if record["event"] == "control_refused":
                say(f"refused after step {record['global_step']}: {record['reason']}")
                return EXIT_FAILED
            say(applied(record))
            missing.pop(str(record["control"]), None)
        if not missing:
            return 0
        if ended and withdraw(run, request):
            say(f"not applied: {', '.join(missing)}: the training has ended before: {ended}")
            return EXIT_FAILED
        if not runs:
            say(
                f"pending: {', '.join(missing)}: the training process has died; the next attempt applies it, "
                f"unless you remove {shown(path_of(run, request))}"
            )
            return EXIT_STOPPED
        if not in_time:
            say(
                f"pending: {', '.join(missing)}: not answered in {seconds:g} s; it is applied after a step, "
                f"a setting {DEBOUNCE_SECONDS:g} s after its last change, unless you remove "
                f"{shown(path_of(run, request))}"
            )
            return EXIT_STOPPED
        time.sleep(0.1)


def applied(record: Record) -> str:
    """One change, as the journal has it."""
    was = f", was {record['old']}" if record["old"] is not None else ""
    return f"applied after step {record['global_step']}: {record['control']}={record['new']}{was}"


if __name__ == "__main__":
    run_command(main)
