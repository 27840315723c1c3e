"""Small trainings by DistributedDataParallel; in each a rank is late in another place of its steps.

    RANK=0 WORLD_SIZE=3 python tests/data/delays/train.py FOLDER

One process per rank, as torchrun starts them. FOLDER/cases.json lists the trainings; each leaves a run in
FOLDER/NAME. The late rank sleeps 40 ms per step, longer on a busy machine (see `longest_step`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from monitoring import Run
from monitoring.telemetry.phases import open_phases, watch_ddp

WARM_UP, NUM_STEPS = 2, 8
SECONDS = 0.04
# Of the longest step of any rank: so much longer is the delay.
TIMES = 4
PARTS = 3
"""Micro-batches of a step with accumulation; all but the last are within no_sync()."""


@dataclass(frozen=True)
class Case:
    name: str
    place: str
    late_rank: int
    has_buffers: bool
    late_part: int | None
    """Micro-batch of the delay; None for a training without accumulation."""
    records_parts: bool
    """Whether forward and backward are marked apart."""


class Late(torch.autograd.Function):
    """Does nothing, and calls a function in backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, delay: Callable[[], None]) -> Tensor:
        ctx.delay = delay
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.delay()
        return gradient, None


class Classifier(nn.Module):
    def __init__(self, delay: Callable[[str], None], *, has_buffers: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8) if has_buffers else nn.Identity()
        self.delay = delay

    def forward(self, images: Tensor) -> Tensor:
        images = Late.apply(images, lambda: self.delay("after_gradients"))  # type: ignore[no-untyped-call]
        hidden = self.norm(self.first(images))
        self.delay("forward")
        hidden = Late.apply(hidden, lambda: self.delay("backward"))  # type: ignore[no-untyped-call]
        found: Tensor = self.last(hidden)
        return found


def train(directory: Path, case: Case, seconds: float) -> None:
    """Every place calls `delay` with its name; the one of the case sleeps, in one micro-batch per step."""
    rank, part = dist.get_rank(), 0

    def delay(place: str) -> None:
        if place == case.place and rank == case.late_rank and part == (case.late_part or 0):
            time.sleep(seconds)

    phases = open_phases(torch.device("cpu"))
    model = DistributedDataParallel(Classifier(delay, has_buffers=case.has_buffers))
    watch_ddp(model, phases)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last = 0 if case.late_part is None else PARTS - 1
    with Run(directory, name=case.name, project="tests", config={}, rank=rank, agent=False) as run:
        run.start(model={"name": "Classifier"}, training={"num_steps": NUM_STEPS})
        for step in range(1 - WARM_UP, NUM_STEPS + 1):
            phases.begin()
            for part in range(last + 1):
                with model.no_sync() if part < last else nullcontext():
                    images, labels = torch.randn(8, 16, requires_grad=True), torch.randint(4, (8,))
                    delay("data")
                    phases.end("data_seconds")
                    delay("before_model")
                    loss = F.cross_entropy(model(images), labels)
                    delay("loss")
                    if case.records_parts:
                        phases.end("forward_seconds")
                    loss.backward()
                    delay("after_backward")
                    phases.end("backward_seconds" if case.records_parts else "forward_backward_seconds")
            part = 0
            delay("before_update")
            optimizer.step()
            optimizer.zero_grad()
            delay("optimizer")
            phases.end("optimizer_seconds")
            found = phases.read()
            if step >= 1:
                run.log_step(step, train_loss=loss.detach(), **found)
            delay("between_steps")


def longest_step() -> float:
    """Seconds of the longest of some steps in which no rank is late, of all ranks; the first two warm up."""
    model = DistributedDataParallel(Classifier(lambda place: None, has_buffers=True))
    longest = torch.zeros(())
    for number in range(6):
        began = time.perf_counter()
        F.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,))).backward()
        if number >= WARM_UP:
            longest = torch.maximum(longest, torch.tensor(time.perf_counter() - began))
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = folder / "meeting"  # where the ranks find each other, without a port
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(minutes=10)
    )
    for case in json.loads((folder / "cases.json").read_text()):
        train(folder / case["name"], Case(**case), max(SECONDS, TIMES * longest_step()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
