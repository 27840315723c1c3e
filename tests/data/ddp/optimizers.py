"""Two ranks that share a model, beside the same in one process: how far each optimizer's weights are apart.

RANK=0 WORLD_SIZE=2 … python -m tests.data.ddp.optimizers FLAGS… [-- FLAGS…]

Each list of flags is of one optimizer; the ranks print a list of the largest differences after six steps. And
what rank 0 has of the gradients between two micro-batches: whether each is a part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kharness.config.options import parse
from kharness.training.distributed.model import ShardedModel, share_model, unsynchronized
from kharness.training.distributed.world import ALONE, World, joined_world
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.saving.sharded import full, is_sharded

ROOT = Path(__file__).resolve().parents[3]


def difference(world: World, flags: list[str]) -> float:
    values = parse(flags, root=ROOT, model="gpt2", prog="", description=None)[0].values
    trained = []
    for is_shared in (True, False):
        torch.manual_seed(1)
        hidden = [nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh()]
        model = nn.Sequential(*hidden, nn.Linear(5, 1)).double()
        if is_shared:
            share_model(model, world, torch.device("cpu"))
        trained.append(weights_after(model, values, world if is_shared else ALONE))
    return max(float((a - b).abs().max()) for a, b in zip(*trained, strict=True))


def weights_after(model: nn.Module, values: Mapping[str, Any], world: World) -> list[Tensor]:
    optimizer, _ = build_optimizer(values["OPTIMIZER"], model, values)
    weights = weights_of(model, optimizer)
    for step in range(6):
        weights.to_train()
        optimizer.zero_grad()
        inputs = torch.arange(64, dtype=torch.float64).reshape(8, 8).remainder(5 + step)
        own = world.own_part(inputs * (40 if step == 4 else 1))
        (model(own) - own.sin().sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    weights.to_evaluate()
    return [full(weight.detach()) for weight in model.parameters()]


def is_apart_between_micro_batches(world: World) -> list[bool]:
    shared = nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 4)).double()
    share_model(shared, world, torch.device("cpu"))
    model = ShardedModel(shared)
    inputs = torch.arange(16, dtype=torch.float64).reshape(2, 8)
    with unsynchronized(model):
        model(inputs).square().mean().backward()
    return [is_sharded(weight.grad) for weight in model.parameters()]


def main() -> None:
    given: list[list[str]] = [[]]
    for argument in sys.argv[1:]:
        if argument == "--":
            given.append([])
        else:
            given[-1].append(argument)
    with joined_world(device="cpu", minutes=10) as world:
        found = [difference(world, flags) for flags in given]
        parts = is_apart_between_micro_batches(world)
    if world.is_main:
        print(json.dumps({"apart": found, "are_parts": parts}))


if __name__ == "__main__":
    main()
