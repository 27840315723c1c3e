"""Every optimizer with every pruning method: what cannot work is refused by the options."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kharness.config.assignment import Origin
from kharness.config.errors import ConfigError
from kharness.config.tree import Tree
from kharness.training.optimizers import OPTIMIZERS, build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.pruning import PRUNING_METHODS, build_pruner

METHODS = [name.replace("_", "-") for name in PRUNING_METHODS.names]
# Those that keep no mean gradient; not both moments of each weight; an average, in which no weight returns.
IMPOSSIBLE = [
    *itertools.product(["adafactor", "schedulefree"], ["taylor"]),
    *itertools.product(["adafactor", "lion", "muon", "schedulefree", "sgd", "soap"], ["state"]),
    ("schedulefree", "movement-sanh"),
]


@pytest.fixture(scope="module")
def tree(root: Path) -> Tree:
    return Tree.load(root)


def resolved(tree: Tree, **asked: str) -> Mapping[str, Any]:
    return tree.resolve([a for n, v in asked.items() for a in tree.assignments(n, v, Origin("test"))]).values


@pytest.mark.parametrize(("optimizer", "method"), IMPOSSIBLE)
def test_what_cannot_work_is_refused_by_the_tree(tree: Tree, optimizer: str, method: str) -> None:
    symbol = "PRUNING_" + method.replace("-", "_").upper()
    with pytest.raises(ConfigError, match=f"{symbol}=y has no effect: needs OPTIMIZER_"):
        resolved(tree, OPTIMIZER=optimizer, PRUNING=method)


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_what_the_tree_offers_prunes(name: str, tree: Tree) -> None:
    values = dict(resolved(tree, OPTIMIZER=name))
    values |= {"PRUNING_GLOBAL": True, "PRUNING_END_FRACTION": 0.75, "PRUNING_STATE_VARIANT": "bitter0"}
    members = {method: tree.kconf.syms["PRUNING_" + method.replace("-", "_").upper()] for method in METHODS}
    offered = [method for method, member in members.items() if member.visibility]
    assert [method for method in offered if (name, method) in IMPOSSIBLE] == []
    assert set(METHODS) - set(offered) <= {"state", "taylor", "movement-sanh"}, "the others need no state"
    for method in offered:
        values["PRUNING_SPARSITY"] = 0.5
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(16, 4), nn.Linear(4, 3))
        optimizer, _ = build_optimizer(name, model, values)
        weights = weights_of(model, optimizer)
        pruner = build_pruner(method, model, optimizer, values, num_steps=4)
        for step in range(1, 5):
            weights.to_train()
            optimizer.zero_grad()
            model(torch.randn(5, 1, 3, 3)).square().mean().backward()
            optimizer.step()
            pruner.after_step(step)
        weights.to_evaluate()
        assert pruner.measured() == {"sparsity": 0.5}, method


def test_adamwprune_prunes_by_its_state_unless_another_way_is_requested(tree: Tree) -> None:
    assert resolved(tree, OPTIMIZER="adamwprune")["PRUNING"] == "state"
    assert resolved(tree, OPTIMIZER="adamwprune", PRUNING="none")["PRUNING"] == "none"
    assert resolved(tree, OPTIMIZER="adamw")["PRUNING"] == "none"
