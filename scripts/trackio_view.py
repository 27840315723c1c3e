"""Open Trackio's dashboard for the configured project on the configured port (`make trackio-view`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.config.make import variables as make_variables
from kharness.config.options import Options
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.environment.parts import bring
from monitoring.errors import refusal
from monitoring.trackers import require_package
from monitoring.trackers.trackio import database, show

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C; 2 if the port is taken, Trackio is missing or the project has no runs yet."""
    variables = make_variables.given(argv, os.environ, "trackio-view", root=ROOT)
    tree = Tree.load(ROOT)
    base = starting_layer(tree, make_variables.output_directory(variables, ROOT))
    options = Options(tree.resolve(base, make_variables.layer(tree, variables)), tree=tree)
    bring(["trackio"])
    require_package("trackio")
    refuse_taken_port(options.TRACKIO_PORT)
    project = options.TRACKER_PROJECT
    if not database(project).exists():
        raise KharnessError(
            f"{project} has no runs in {database(project).parent}", hint="make train TRACKER=trackio"
        )
    print(f"project {project} on port {options.TRACKIO_PORT}; Ctrl-C ends it", flush=True)
    show(project, port=options.TRACKIO_PORT)
    return 0


def refuse_taken_port(port: int) -> None:
    """Raise KharnessError if the port is taken, or may not be used."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = refusal(error)
            raise KharnessError(
                f"TRACKIO_PORT={port}: {reason}", hint=f"make trackio-view CONFIG_TRACKIO_PORT={port + 1}"
            ) from error


if __name__ == "__main__":
    run_command(main)
