"""Ranks that agree on some steps (four); each prints what it found, and the collectives that a step took.

RANK=0 WORLD_SIZE=2 … python tests/data/ddp/agree.py [STEPS BETWEEN_ROUNDS]

Rank 0 submits two requests before step 2; the last rank gets a signal after the exchange of step 3.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist

from kharness.training.distributed.agreement import StepAgreement
from kharness.training.distributed.world import joined_world
from kharness.training.guard import StopOnSignal


def main() -> None:
    with joined_world(device="cpu", minutes=10) as world, StopOnSignal() as stop:
        num_steps, between = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 1 else (4, 0.0)
        agreement = StepAgreement(
            world,
            stop,
            is_out_of_time=lambda: step >= 4 and world.rank == 1,
            between_rounds=between,
        )
        for step in range(1, num_steps + 1):
            if step == 2 and world.is_main:
                agreement.submit({"log_every": 5})
                agreement.submit("evaluate")
            before = num_collectives()
            losses = agreement.exchange(torch.tensor(0.1 * (world.rank + step)))
            took = num_collectives() - before
            if step == 3 and world.rank == world.size - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            found = [agreement.requests, agreement.stop_is_requested, agreement.out_of_time]
            print(json.dumps([*found, took, losses.tolist(), str(losses.dtype)]))


def num_collectives() -> int:
    group: Any = dist.group.WORLD
    return int(group._get_sequence_number_for_group()) if group else 0


if __name__ == "__main__":
    main()
