"""A training of several processes on CPUs: each has a share of the batch, all have the mean gradients.

    RANK=0 WORLD_SIZE=2 python tests/data/ranks/train.py RUN_DIR [SLOW_RANK [WAY]]

One process a rank, as torchrun starts them; the slow rank needs 200 ms more for forward and backward. The
gradients are averaged after backward, or by DistributedDataParallel within it: WAY `ddp` leaves its waiting
out, `ddp_unwatched` does not.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from monitoring import Run
from monitoring.telemetry.phases import open_phases, watch_ddp

NUM_STEPS = 12


class SlowBackward(torch.autograd.Function):
    """Does nothing, and takes 200 ms in backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return gradient


class Classifier(torch.nn.Module):
    """Two layers, and between them a backward that may be slow."""

    def __init__(self, *, is_slow: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
        self.is_slow = is_slow

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.first(images)
        if self.is_slow:
            hidden = SlowBackward.apply(hidden)  # type: ignore[no-untyped-call]  # torch's, without types
        found: torch.Tensor = self.second(hidden)
        return found


def main(directory: Path, slow_rank: int, way: str) -> None:
    torch.set_num_threads(1)
    directory.parent.mkdir(parents=True, exist_ok=True)
    meeting = directory.with_suffix(".meeting")  # where the ranks find each other, without a port
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(minutes=10),
    )
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model: torch.nn.Module = Classifier(is_slow=rank == slow_rank)
    phases = open_phases(torch.device("cpu"))
    if way == "after_backward":
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
        if way == "ddp":
            watch_ddp(model, phases)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Run(
        directory, name="ranks", project="tests", config={}, rank=rank, gpu_monitor={"interval": 0.05}
    ) as run:
        run.start(model={"name": "Linear"}, training={"num_steps": NUM_STEPS, "device": "cpu"})
        for step in range(1, NUM_STEPS + 1):
            phases.begin()
            images, labels = torch.randn(8, 16), torch.randint(4, (8,))
            phases.end("data_seconds")
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            phases.end("forward_backward_seconds")
            if way == "after_backward":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    assert parameter.grad is not None
                    parameter.grad /= num_ranks
                phases.leave_out()  # who is early waits here for the slow one
            optimizer.step()
            phases.end("optimizer_seconds")
            run.log_step(step, train_loss=loss.detach(), **phases.read())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        int(sys.argv[2]) if len(sys.argv) > 2 else -1,
        sys.argv[3] if len(sys.argv) > 3 else "after_backward",
    )
