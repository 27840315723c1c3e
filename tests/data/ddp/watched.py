"""Models that DistributedDataParallel averages in other ways, watched: of two ranks the second is late.

RANK=0 WORLD_SIZE=2 … python tests/data/ddp/watched.py

Prints as JSON, of each way, the phases and the waiting of a step as shares of the 50 ms of the late rank.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kharness.training.distributed.world import joined_world
from monitoring.telemetry.phases import PHASES, open_phases, watch_ddp

SECONDS = 0.05
STEPS = 4

WAYS: dict[str, dict[str, bool]] = {
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
    "static, unused": {"find_unused_parameters": True, "static_graph": True},
}


class Unused(nn.Module):
    """One of its layers has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.first(x))
        return found


def main() -> None:
    with joined_world(device="cpu", minutes=10) as world:
        shares = {}
        for name, way in WAYS.items():
            phases = open_phases(torch.device("cpu"))
            model = DistributedDataParallel(Unused(), **way)  # type: ignore[arg-type]  # all are of type bool
            watch_ddp(model, phases)
            for _ in range(STEPS):
                phases.begin()
                inputs = torch.randn(8, 4)
                phases.end(PHASES[0])
                time.sleep(SECONDS * world.rank)
                model(inputs).square().mean().backward()
                phases.end(PHASES[1])
                phases.end(PHASES[2])
            found: Mapping[str, Any] = phases.read()
            own = sum(found[phase] for phase in PHASES)
            shares[name] = [own / SECONDS, found["collective_seconds"] / SECONDS]
        phases = open_phases(torch.device("cpu"))
        joined = DistributedDataParallel(nn.Linear(4, 1))
        watch_ddp(joined, phases)
        with joined.join():  # a rank that has no more batches takes part in the averaging of the other
            for _ in range(2 + 2 * world.rank):
                joined(torch.randn(2, 4)).sum().backward()
        print(json.dumps(shares))


if __name__ == "__main__":
    main()
