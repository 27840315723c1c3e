"""Runs a script as the ranks of one training, as torchrun does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ....warm_python import WarmPython


def run_ranks(python: WarmPython, script: Path, folder: Path, size: int) -> None:
    """Run `script folder` in so many processes; AssertionError with what one has said that fails."""
    # What is left of an earlier round has addresses at which nobody listens: both would wait to be connected.
    (folder / "meeting").unlink(missing_ok=True)
    ranks = [
        python.start(
            [script, folder],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size)},
            stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            _, said = rank.communicate(timeout=600)
            assert rank.returncode == 0, said
    finally:
        for rank in ranks:  # of one that fails the others would wait, and be a later test's failure
            rank.kill()
            with rank:
                pass
