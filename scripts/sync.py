"""Bring the trackers of finished runs up to date (`make sync [RUN=dir] [TRACKER=wandb,trackio|both]`).

RUN is a run directory, or one that holds some, such as a matrix; default: the newest. TRACKER adds trackers
that the run did not have. A run that an agent still follows is waited for, and how far it is is printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kharness.config.assignment import tracker_list
from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.environment.parts import bring
from kharness.runs.latest import asked_directory, shown
from monitoring.agent.delivery import Delivery
from monitoring.agent.follow import catch_up, leave
from monitoring.agent.lock import death, has_died
from monitoring.agent.wait import wait_for_agent
from monitoring.counts import counted
from monitoring.errors import RunBusyError, RunDirectoryError, UserError, print_error
from monitoring.follower import configured_options, follower_module, upload_commands
from monitoring.journal.files import RUN_JSON
from monitoring.journal.run_json import read_run_json

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when every follower has everything, 2 when one fails or does not respond."""
    variables = make_variables.given(argv, os.environ, "sync", root=ROOT)
    place = asked_directory(variables, make_variables.output_directory(variables, ROOT))
    asked = tracker_names(variables.get("TRACKER", ""))
    failures = 0
    for directory in run_directories(place):
        try:
            deliveries = deliver(directory, asked)
        except RunBusyError as error:
            failures += 1
            print_error(f"{shown(directory)}: {error}", error.hint)
            continue
        kept = upload_commands(directory, trackers_of(directory, asked))
        for delivery in deliveries:
            if delivery.finished:
                say(f"{shown(directory)}: {delivery.name}: {outcome(delivery)}")
                if delivery.name in kept:
                    say(f"  on this disk, not uploaded; to upload it:\n  {kept[delivery.name]}")
                continue
            failures += 1
            hint = delivery.error.hint if isinstance(delivery.error, UserError) else ""
            print_error(
                f"{shown(directory)}: {delivery.name}: {reason(delivery.error)}", hint or "try again later"
            )
    if failures:  # a tracker that fails may have left threads that would keep this process for ever
        leave(2)
    return 0


def deliver(directory: Path, asked: Sequence[str]) -> Sequence[Delivery]:
    """Bring the run's followers up to date; none if it is still training and its agent has done that."""

    def tell(line: str) -> None:
        say(f"{shown(directory)}: {line}")

    trackers = trackers_of(directory, asked)
    bring(trackers)
    if has_died(directory):
        tell(death())
    added = trackers.keys() - read_run_json(directory)["tracking"]["trackers"].keys()
    while wait_for_agent(directory, tell, to_its_end=bool(added)):
        try:
            return catch_up(directory, trackers)
        except RunBusyError:  # the agent of a next attempt has come meanwhile
            continue
    tell("it is still training, and its agent has delivered everything so far")
    return []


def reason(error: Exception | None) -> str:
    """Why a follower lacks records; some errors, as that of exhausted memory, say nothing but their name."""
    return "is not responding" if error is None else str(error) or type(error).__name__


def outcome(delivery: Delivery) -> str:
    """Return what was delivered, in words."""
    progress = delivery.progress
    new = counted(delivery.delivered, "new record")
    aside = f"; {counted(progress.refused, 'record')} skipped, last {progress.refusal}"
    return f"{new}, {progress.seq} in all" + (aside if progress.refused else "")


def tracker_names(asked: str) -> list[str]:
    """`both`, or names with commas; UnknownFollower lists the known trackers when one is unknown."""
    names = tracker_list(asked or "none")
    for name in names:
        follower_module(name)
    return names


def run_directories(path: Path) -> list[Path]:
    """The directory itself if it is a run, else the runs in it."""
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is not a directory", hint="name one that a training wrote")
    found = [path] if (path / RUN_JSON).exists() else sorted(run.parent for run in path.glob(f"*/{RUN_JSON}"))
    if not found:
        read_run_json(path)
    return found


def trackers_of(directory: Path, asked: Sequence[str]) -> dict[str, Mapping[str, object]]:
    """The run's trackers, and the requested ones with the options that its configuration gives them."""
    run: dict[str, Any] = read_run_json(directory)
    own: dict[str, Mapping[str, object]] = run["tracking"]["trackers"]
    added = {name: configured_options(name, run["config"]) for name in asked if name not in own}
    return {**own, **added}


if __name__ == "__main__":
    run_command(main)
