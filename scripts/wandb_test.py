"""Send made-up metrics to W&B and read them back (`make wandb-test`).

Without a login, or with WANDB_MODE=offline, the run is recorded offline; no network is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kharness.config import make_variables
from kharness.config.errors import run_command
from kharness.config.options import Options
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from monitoring.rehearsal import rehearse
from monitoring.trackers.wandb import where

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """0 when what comes back is what was sent, 3 when it is not, 2 when W&B cannot be used."""
    variables = make_variables.given(argv, os.environ)
    output = make_variables.output_directory(variables, ROOT)
    tree = Tree.load(ROOT)
    resolved = tree.resolve(starting_layer(tree, output), make_variables.layer(tree, variables))
    options = Options(resolved, tree=tree)
    name = f"fake-{datetime.now(UTC):%Y%m%dT%H%M%S_%f}"
    rehearsal = rehearse(
        "wandb",
        {"entity": options.WANDB_ENTITY, "offline": options.WANDB_OFFLINE},
        directory=output / Path(options.RESULTS_DIR).expanduser() / "wandb-test" / name,
        name=name,
        project=f"{options.TRACKER_PROJECT}-test",
    )
    run = rehearsal.run
    print(f"sent {len(rehearsal.sent)} made-up points in {rehearsal.records} records: run {name}")
    if not rehearsal.is_exact:
        print(f"error: wandb: {rehearsal.difference()}", file=sys.stderr)
        print(f"hint: {where(run) if rehearsal.error is None else rehearsal.hint()}", file=sys.stderr)
        return 3
    print("read back: every one of them, once")
    print(f"look: {where(run)}")
    return 0


if __name__ == "__main__":
    run_command(main)
