"""Four runs of a small model by DistributedDataParallel; in each another rank is slow in another phase.

    RANK=0 WORLD_SIZE=4 python tests/data/straggler/train.py FOLDER

One process a rank, as torchrun starts them. 200 ms are spent in one phase of one rank; more on a machine that
is so busy that a step without them takes nearly as long.
"""

from __future__ import annotations

import json
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
from monitoring.telemetry import TelemetryCallback
from monitoring.telemetry.phases import open_phases, watch_ddp

NUM_STEPS = 5
SECONDS = 0.2
# Of the longest step of any rank: so much longer is what is spent.
TIMES = 4
SLOW = {"data": 0, "forward": 1, "backward": 2, "optimizer": 3}


spent = SECONDS


class SlowBackward(torch.autograd.Function):
    """Does nothing, and takes its time in backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(spent)
        return gradient


class Classifier(torch.nn.Module):
    """Batch norm has buffers, which rank 0 sends to the others before each forward pass."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8)
        self.last, self.slow = torch.nn.Linear(8, 4), slow

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(images))
        if self.slow == "forward":
            time.sleep(spent)
        elif self.slow == "backward":
            hidden = SlowBackward.apply(hidden)  # type: ignore[no-untyped-call]  # torch's, without types
        found: torch.Tensor = self.last(hidden)
        return found


def train(directory: Path, slow: str) -> None:
    rank = dist.get_rank()
    phases = open_phases(torch.device("cpu"))
    model = torch.nn.parallel.DistributedDataParallel(Classifier(slow))
    watch_ddp(model, phases)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    telemetry = TelemetryCallback(directory, world_process_zero_only=False)
    with Run(directory, name=directory.name, project="tests", config={}, rank=rank, agent=False) as run:
        run.start(
            model={"name": "Classifier"},
            training={"num_steps": NUM_STEPS, "world_size": dist.get_world_size()},
        )
        for step in range(NUM_STEPS + 1):
            telemetry.on_step_begin()
            phases.begin()
            images, labels = torch.randn(8, 16), torch.randint(4, (8,))
            time.sleep(spent if slow == "data" else 0)
            phases.end("data_seconds")
            loss = F.cross_entropy(model(images), labels)
            phases.end("forward_seconds")
            optimizer.zero_grad()
            loss.backward()
            phases.end("backward_seconds")
            optimizer.step()
            time.sleep(spent if slow == "optimizer" else 0)
            phases.end("optimizer_seconds")
            telemetry.on_step_end()
            found = phases.read()
            if step:  # the first one warms up
                run.log_step(step, train_loss=loss.detach(), **found)
        telemetry.on_train_end()
        summaries = telemetry.tracker.get_summaries_from_all_ranks()
    counts = [found["timers"]["steps"]["count"] for found in summaries]
    (directory / f"counts.{rank}").write_text(json.dumps(counts))


def longest_step() -> float:
    """Seconds of the longest of some steps in which no rank is slow, of all ranks; the first two warm up."""
    model = torch.nn.parallel.DistributedDataParallel(Classifier(""))
    longest = torch.zeros(())
    for number in range(5):
        began = time.perf_counter()
        F.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,))).backward()
        if number >= 2:
            longest = torch.maximum(longest, torch.tensor(time.perf_counter() - began))
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


def main(folder: Path) -> None:
    global spent
    torch.set_num_threads(1)
    meeting = folder / "meeting"  # where the ranks find each other, without a port
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(minutes=10)
    )
    spent = max(SECONDS, TIMES * longest_step())
    for phase, slow_rank in SLOW.items():
        train(folder / phase, phase if rank == slow_rank else "")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
