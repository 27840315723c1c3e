"""Ranks that a test starts."""

from __future__ import annotations

import os
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from ....warm_python import StartedPython, WarmPython
from .ranks import FLAGS, StartRanks


@pytest.fixture
def start_ranks(root: Path, tmp_path: Path, warm_torch: WarmPython) -> StartRanks:
    """Start all ranks of tests/data/ddp/train.py in a run directory, as a launcher does."""
    meetings: list[Path] = []

    def start(run: Path, size: int, *flags: str, **env: str) -> list[StartedPython]:
        meetings.append(tmp_path / f"meeting{len(meetings)}")
        of_all = {**os.environ, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), **env}
        if size > 1:
            of_all["KHARNESS_RENDEZVOUS_FILE"] = str(meetings[-1])
        usual = [pair for pair in zip(FLAGS[::2], FLAGS[1::2], strict=True) if pair[0] not in flags]
        given = flags if (run / ".config").exists() else (*chain(*usual), *flags)
        return [
            warm_torch.start(
                [root / "tests/data/ddp/train.py", "--run-dir", run, *given],
                env={**of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(size)
        ]

    return start
