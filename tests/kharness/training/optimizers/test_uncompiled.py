"""Optimizers of a training that compiles nothing do without the compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# What torch has itself, the others are made as these are.
NAMES = ("adafactor", "adamw", "muon", "nadamw", "sgd")

TRAIN = """
import inspect, json, sys
from pathlib import Path

import torch
from torch import nn

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.optimizers._uncompiled import spare_dynamo

def trained(name):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    values = tree.resolve(tree.assignments("OPTIMIZER", name, Origin("test"))).values
    optimizer, _ = build_optimizer(name, model, values)
    weights_of(model, optimizer).to_train()
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(5, 4)).square().sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert torch.is_grad_enabled()
    return [weight.tolist() for weight in model.parameters()]

tree = Tree.load(Path(sys.argv[1]))
torch.set_num_threads(1)
spare_dynamo()
alone = {name: trained(name) for name in sys.argv[2:]}
is_imported = "torch._dynamo" in sys.modules
import torch._dynamo
with_it = {name: trained(name) for name in sys.argv[2:]}
zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
print(json.dumps([is_imported, alone, with_it, hasattr(zero_grad, "__dynamo_disable")]))
"""


def test_nothing_imports_it_until_something_compiles(root: Path) -> None:
    """Then what torch keeps from being compiled is kept again. The steps are the same to the last bit."""
    command = [sys.executable, "-c", TRAIN, str(root), *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    is_imported, alone, with_it, is_kept_from_it = json.loads(done.stdout)
    assert (is_imported, is_kept_from_it) == (False, True)
    assert alone == with_it
    assert list(alone) == list(NAMES)
