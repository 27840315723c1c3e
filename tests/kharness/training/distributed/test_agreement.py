"""All ranks agree on requests and stops of a step after its single exchange."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

from kharness.training.distributed.agreement import MOST_STEPS

from ....warm_python import WarmPython

ASKED = [{"log_every": 5}, "evaluate"]


def found_by_ranks(
    root: Path, folder: Path, warm_torch: WarmPython, size: int, *arguments: object
) -> list[list[Any]]:
    """Requests, stop, end of time, collectives and losses of some steps, by rank."""
    of_all = {**os.environ, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    ranks = [
        warm_torch.start(
            [root / "tests/data/ddp/agree.py", *arguments],
            env={
                **of_all,
                "KHARNESS_RENDEZVOUS_FILE": str(folder / f"meeting{size}"),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
            stdout=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    return [[json.loads(line) for line in rank.communicate(timeout=600)[0].splitlines()] for rank in ranks]


def losses(step: int, size: int) -> list[float]:
    return [torch.tensor(0.1 * (rank + step)).item() for rank in range(size)]


def test_requests_stops_and_losses_reach_all_ranks_in_the_same_step(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """One collective a step, but for requests (their size, and they); a signal after it is for the next."""
    expected = [
        [[], False, False, 1, losses(1, 3), "torch.float32"],
        [ASKED, False, False, 3, losses(2, 3), "torch.float32"],
        [[], False, False, 1, losses(3, 3), "torch.float32"],
        [[], True, True, 1, losses(4, 3), "torch.float32"],
    ]
    assert found_by_ranks(root, tmp_path, warm_torch, 3) == [expected] * 3


def test_alone_nothing_is_exchanged_and_a_signal_counts_at_once(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    assert found_by_ranks(root, tmp_path, warm_torch, 1) == [
        [
            [[], False, False, 0, losses(1, 1), "torch.float32"],
            [ASKED, False, False, 0, losses(2, 1), "torch.float32"],
            [[], True, False, 0, losses(3, 1), "torch.float32"],
            [[], True, False, 0, losses(4, 1), "torch.float32"],
        ]
    ]


def test_fast_steps_exchange_their_losses_alone_but_now_and_then(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """Requests of step 2, a signal and the end of time reach all ranks in one later step, as on a GPU."""
    later = 1 + MOST_STEPS
    nothing = [[], False, False]
    expected = {
        1: [*nothing, 2, losses(1, 2), "torch.float32"],
        **{step: [*nothing, 1, losses(step, 2), "torch.float32"] for step in range(2, later)},
        later: [ASKED, True, True, 4, losses(later, 2), "torch.float32"],
        later + 1: [[], True, True, 1, losses(later + 1, 2), "torch.float32"],
    }
    found = found_by_ranks(root, tmp_path, warm_torch, 2, len(expected), 1e6)
    assert found == [list(expected.values())] * 2


def test_slow_steps_exchange_all_each_time(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    found = found_by_ranks(root, tmp_path, warm_torch, 2, 4, 1e-9)
    assert [step[3] for step in found[0]] == [2, 4, 2, 2]
