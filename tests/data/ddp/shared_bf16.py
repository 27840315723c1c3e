"""Ranks that share a model whose layers are gathered in bfloat16, beside one that is gathered in float32.

RANK=0 WORLD_SIZE=2 … python tests/data/ddp/shared_bf16.py

Prints as JSON the losses of both, under torch.autocast, and the types in which layers compute, are kept and
have their gradients.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.distributed.model import ShardedModel, share_model
from kharness.training.distributed.world import World, joined_world


class Layer(nn.Module):
    """A residual one. Its norm has no weights: autocast takes them in float32 on a GPU, not on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 16)
        self.seen: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen = [str(self.linear.weight.dtype), str(x.dtype)]
        found: Tensor = x + self.linear(self.norm(x))
        return found


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.first(x).float()
            for layer in self.layers:
                x = layer(x)
            found: Tensor = self.last(x).float()
        return found


def trained(world: World, *, bf16: bool) -> tuple[list[float], list[str]]:
    torch.manual_seed(1)
    layers = Layers()
    share_model(layers, world, torch.device("cpu"), bf16=bf16)
    model: Any = ShardedModel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    inputs = torch.randn(world.size, 4, 8)[world.rank]
    layer: Any = layers.layers[0]
    for _ in range(5):
        loss = (model(inputs) - inputs.sum(-1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(world.total(loss.item()) / world.size)
        weight = layer.linear.weight
        kept, gradient = str(weight.dtype), str(weight.grad.dtype)
        optimizer.zero_grad()
    return losses, [*layer.seen, kept, gradient]


def main() -> None:
    with joined_world(device="cpu", minutes=10) as world:
        print(json.dumps([trained(world, bf16=bf16) for bf16 in (True, False)]))


if __name__ == "__main__":
    main()
