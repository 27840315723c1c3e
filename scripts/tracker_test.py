"""Send made-up metrics to a tracker and read them back (`make trackio-test`, `make wandb-test`).

No training and no network: W&B records offline without a login, or with WANDB_MODE=offline.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.options import Options
from kharness.config.output import say
from kharness.config.places import asked_path
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.environment.parts import bring
from monitoring.counts import counted
from monitoring.errors import print_error
from monitoring.follower import configured_options, follower_module
from monitoring.rehearsal import rehearse

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when what comes back is what was sent, 3 when it is not, 2 when the tracker cannot be used."""
    tracker, *words = argv
    variables = make_variables.given(words, os.environ, f"{tracker}-test", root=ROOT)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    resolved = tree.resolve(starting_layer(tree, output), make_variables.layer(tree, variables))
    options = Options(resolved, tree=tree)
    bring([tracker])
    name = f"fake-{datetime.now(UTC):%Y%m%dT%H%M%S_%f}"
    rehearsal = rehearse(
        tracker,
        configured_options(tracker, options.values),
        directory=output / asked_path("RESULTS_DIR", options.RESULTS_DIR) / f"{tracker}-test" / name,
        name=name,
        project=f"{options.TRACKER_PROJECT}-test",
    )
    points = counted(len(rehearsal.sent), "made-up point")
    say(f"sent {points} in {counted(rehearsal.records, 'record')}: run {name}")
    if rehearsal.error is not None:
        print_error(f"{tracker}: {rehearsal.error}", rehearsal.hint())
        return 3
    look = follower_module(tracker).where(rehearsal.run)
    if not rehearsal.is_exact:
        print_error(f"{tracker}: {rehearsal.difference()}", look)
        return 3
    say(f"read back: every one of them, once\nlook: {look}")
    return 0


if __name__ == "__main__":
    run_command(main)
