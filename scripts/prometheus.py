"""Show every run below a directory to Prometheus until Ctrl-C (`make prometheus [RUN=dir]`).

RUN is a matrix, a run, or a folder of them; the default is RESULTS_DIR. Runs that begin later are shown, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.options import Options
from kharness.config.places import asked_path
from kharness.config.presets import starting_layer
from kharness.config.tree import Tree
from kharness.runs.latest import asked_directory
from monitoring.errors import PortTakenError
from monitoring.exporters.prometheus import show

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Serve on PROMETHEUS_HOST and PROMETHEUS_PORT; 2 if the port is taken or there is no such directory."""
    variables = make_variables.given(argv, os.environ, "prometheus", root=ROOT)
    tree = Tree.load(ROOT)
    base = starting_layer(tree, make_variables.output_directory(variables, ROOT))
    options = Options(tree.resolve(base, make_variables.layer(tree, variables)), tree=tree)
    run = variables.get("RUN")
    directory = (
        asked_directory(variables, Path()) if run else ROOT / asked_path("RESULTS_DIR", options.RESULTS_DIR)
    )
    try:
        show(directory, host=options.PROMETHEUS_HOST, port=options.PROMETHEUS_PORT)
    except PortTakenError as error:
        make = "make prometheus CONFIG_PROMETHEUS_"
        raise error.options_are(port=f"{make}PORT=", host=f"{make}HOST=") from error
    return 0


if __name__ == "__main__":
    run_command(main)
