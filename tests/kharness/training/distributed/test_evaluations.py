"""Ranks take turns at the chunks of an evaluation, and add up what they find."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ....warm_python import WarmPython


def evaluations(root: Path, meeting: Path, warm_torch: WarmPython, size: int) -> list[Any]:
    """Metrics and chunks that rank 0 saw: of LeNet-5 and ResNet-50, for 37 and for 8 pictures."""
    of_all = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "KHARNESS_RENDEZVOUS_FILE": str(meeting),
    }
    ranks = [
        warm_torch.start(
            ["-m", "tests.data.ddp.evaluate"],
            cwd=root,
            env={**os.environ, **of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    first, *others = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert others == [""] * (size - 1)
    found: list[Any] = json.loads(first)
    return found


def test_counts_are_those_of_one_process_and_losses_but_for_rounding(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    one = evaluations(root, tmp_path / "one", warm_torch, 1)
    three = evaluations(root, tmp_path / "three", warm_torch, 3)
    assert [chunks for _, chunks in one] == [5, 5, 1, 1]
    assert [chunks for _, chunks in three] == [2, 2, 1, 1]
    for (alone, _), (shared, _) in zip(one, three, strict=True):
        assert shared.keys() == alone.keys()
        assert shared == pytest.approx(alone, rel=1e-6, abs=0)
        counted = [name for name in alone if "accuracy" in name]
        assert [shared[name] for name in counted] == [alone[name] for name in counted]
    assert {"loss", "top5_accuracy", "ema_loss"} <= one[1][0].keys()
