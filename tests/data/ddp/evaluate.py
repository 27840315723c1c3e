"""Ranks that share an evaluation of LeNet-5's and ResNet-50's train.py; rank 0 prints what came out.

RANK=0 WORLD_SIZE=2 … python -m tests.data.ddp.evaluate
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import lenet5.train
import resnet50.train
from kharness.training.data import LabeledImages
from kharness.training.distributed.world import joined_world


def pictures(count: int) -> LabeledImages:
    drawn = torch.Generator().manual_seed(1)
    return LabeledImages(
        torch.randn(count, 1, 4, 4, generator=drawn), torch.randint(10, (count,), generator=drawn)
    )


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 10))


def main() -> None:
    with joined_world(device="cpu", minutes=10) as world:
        training: Any = SimpleNamespace(models={"": model(1), "ema_": model(2)}, world=world)
        found: list[object] = []
        for count in (37, 8):  # of the latter rank 1 and rank 2 have no chunk
            for evaluate in (lenet5.train.evaluate, resnet50.train.evaluate):
                seen: list[tuple[Tensor, Tensor]] = list(pictures(count).chunks(8, world.own_chunks))
                found.append([evaluate(training, seen), len(seen)])
        if world.is_main:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
