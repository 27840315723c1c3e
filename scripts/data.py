"""Fetch and verify the model's datasets: data.py [DATA_DIR=folder] [MIRROR=url] [CONFIG_DATA_DIR=folder].

DATA_DIR is a folder of yours that has the files; without it MIRROR, or the public mirrors. A large dataset,
or one of your own, is prepared where it is the configured DATASET, and then alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make import variables as make_variables
from kharness.config.output import say
from kharness.config.places import given_data
from kharness.config.tree import CONFIG, Tree
from kharness.config.values import Value
from kharness.environment.parts import bring
from kharness.runs.latest import shown
from kharness.training.datasets import DATASETS
from kharness.training.datasets._files import Sources
from kharness.training.datasets._texts import HubDataset

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Bring the datasets into CONFIG_DATA_DIR, but what is shipped; 0 when all are there and verified."""
    variables = make_variables.given(argv, os.environ, "data", root=ROOT)
    names, configured = configuration(variables)
    local, mirror = given_data(variables), variables.get("MIRROR")
    sources = Sources(local, [mirror] if mirror else [], say)
    if any(isinstance(getattr(DATASETS.load(name), "DATASET", None), HubDataset) for name in names):
        bring(["hub"])
    for name in names:
        folder = DATASETS.load(name).fetch(DATASETS.options(name, configured), ROOT, sources)
        say(f"{shown(folder)}: verified")
    return 0


def configuration(variables: dict[str, str]) -> tuple[Sequence[str], Mapping[str, Value]]:
    """The datasets to bring, and the symbols as `.config` and the command line have them."""
    tree = Tree.load(ROOT)
    output = make_variables.output_directory(variables, ROOT)
    layers = [make_variables.layer(tree, variables)]
    if (output / CONFIG).exists():
        layers.insert(0, tree.base(output))
    values = tree.resolve(*layers).values
    chosen = str(values.get("DATASET") or "")
    if not chosen:
        print(f"MODEL={values['MODEL']} has no DATASET to bring")
        return [], values
    if _is_on_request(chosen):
        return [chosen], values
    of_model = [name for name in DATASETS.names if tree.reachable(DATASETS.symbol(name, "").rstrip("_"))]
    return [name for name in of_model if not _is_on_request(name)], values


def _is_on_request(name: str) -> bool:
    return getattr(DATASETS.load(name), "ON_REQUEST", False)


if __name__ == "__main__":
    run_command(main)
