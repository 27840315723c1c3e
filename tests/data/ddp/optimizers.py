"""Two ranks that share a model, beside the same in one process: how far each optimizer's weights are apart.

WORLD_SIZE=2 … python -m tests.data.ddp.optimizers SYMBOL=VALUE… [-- SYMBOL=VALUE…]

Each list of options is of one optimizer; printed is a list of the largest differences after six steps, what
rank 0 has of the gradients between two micro-batches (whether each is a part), and what `compiled` finds.
Rank 1 is a fork: to import these packages once more would take longer than most of the rest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_optimizer  # noqa: F401 - imported once for both ranks
import schedulefree  # noqa: F401
import torch
import torch._inductor.compile_fx
from torch import Tensor, nn

from gpt2.model import build_model
from kharness.config.assignment import Origin
from kharness.config.options import parse
from kharness.config.tree import Tree
from kharness.training.distributed.model import ShardedModel, share_model, unsynchronized
from kharness.training.distributed.world import ALONE, World, joined_world
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.saving.sharded import full, is_sharded

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--gpt2-layers", "2", "--gpt2-width", "8", "--gpt2-heads", "2", "--gpt2-block-size", "8")
COMPILED = ("--parallel", "fsdp", "--compile", "--compile-backend", "aot_eager")


def difference(world: World, tree: Tree, given: list[str]) -> float:
    asked = [word.split("=", 1) for word in ("MODEL=gpt2", *given)]
    layer = [one for name, value in asked for one in tree.assignments(name, value, Origin("test"))]
    values = tree.resolve(layer).values
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


def compiled(world: World) -> dict[str, Any]:
    """Two ranks that share a compiled GPT-2, beside the same in one process, which is not compiled.

    How far losses and weights are apart; how many graphs torch has compiled, and where it had to leave them.
    """
    found = []
    for is_shared in (True, False):
        torch.manual_seed(1)
        options = parse(
            (*SMALL, *COMPILED) if is_shared else SMALL, root=ROOT, model="gpt2", prog="", description=None
        )[0]
        model: nn.Module = build_model(options, vocabulary=64, device=torch.device("cpu")).double()
        if is_shared:
            share_model(model, world, torch.device("cpu"))
        called = ShardedModel(model) if is_shared else model
        optimizer, _ = build_optimizer(options.OPTIMIZER, model, options.values)
        losses = []
        for step in range(3):
            optimizer.zero_grad()
            tokens = torch.arange(32).reshape(4, 8) * (step + 3) % 64
            own = world.own_part(tokens) if is_shared else tokens
            called(own).logsumexp(-1).mean().backward()
            optimizer.step()
            with torch.inference_mode():
                losses.append(called(tokens).logsumexp(-1).mean())
        state = {name: full(weight.detach()) for name, weight in model.state_dict().items()}
        found.append({"loss": torch.stack(losses), **state})
    counters = torch._dynamo.utils.counters
    return {
        "names_are_equal": list(found[0]) == list(found[1]),
        "apart": max(float((found[0][name] - value).abs().max()) for name, value in found[1].items()),
        "num_graphs": counters["stats"]["unique_graphs"],
        "breaks": dict(counters["graph_break"]),
    }


def main() -> None:
    given: list[list[str]] = [[]]
    for argument in sys.argv[1:]:
        if argument == "--":
            given.append([])
        else:
            given[-1].append(argument)
    rank_1 = os.fork()
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if rank_1 else "1"
    with joined_world(device="cpu", minutes=10) as world:
        tree = Tree.load(ROOT)
        found = [difference(world, tree, words) for words in given]
        parts = is_apart_between_micro_batches(world)
        of_compiled = compiled(world)
    if rank_1:
        assert os.waitpid(rank_1, 0)[1] == 0
        print(json.dumps({"apart": found, "are_parts": parts, "compiled": of_compiled}))


if __name__ == "__main__":
    main()
