"""Fetch and verify the full datasets: data.py [DATA_DIR=folder] [MIRROR=url] [CONFIG_DATA_DIR=folder].

DATA_DIR is a folder of yours that has the files; without it MIRROR, or the public mirrors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.places import asked_path
from kharness.config.tree import CONFIG, Tree
from kharness.config.values import Value
from kharness.training.datasets import DATASETS
from kharness.training.datasets._files import Sources
from kharness.training.errors import DatasetError

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Bring every dataset into CONFIG_DATA_DIR, but what is shipped; 0 when all are there and verified."""
    variables = make_variables.given(argv, os.environ, "data", root=ROOT)
    configured = configuration(variables)
    given, mirror = variables.get("DATA_DIR"), variables.get("MIRROR")
    local = asked_path("DATA_DIR", given) if given else None
    if local is not None and not local.is_dir():
        raise DatasetError(
            f"DATA_DIR={given} is not a folder",
            hint="name the folder that has the files; CONFIG_DATA_DIR=folder says where they are put",
        )
    sources = Sources(local, [mirror] if mirror else [], lambda line: print(line, flush=True))
    for name in DATASETS.names:
        folder = DATASETS.load(name).fetch(DATASETS.options(name, configured), ROOT, sources)
        print(f"{folder}: verified")
    return 0


def configuration(variables: dict[str, str]) -> Mapping[str, Value]:
    """The symbols, DATA_DIR above all, as `.config` and the command line have them."""
    tree = Tree.load(ROOT)
    output = make_variables.output_directory(variables, ROOT)
    layers = [make_variables.layer(tree, variables)]
    if (output / CONFIG).exists():
        layers.insert(0, tree.base(output))
    return tree.resolve(*layers).values


if __name__ == "__main__":
    run_command(main)
