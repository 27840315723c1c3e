"""The bridge and programs that report by trackers, as forks of an interpreter that has imported these."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ...warm_python import WarmPython

Bridged = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bridged(warm_bridge: WarmPython) -> Bridged:
    """Run a program to its end under the bridge."""

    def run(run_dir: Path, *program: object, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return warm_bridge.run(
            ["-m", "monitoring.bridge", run_dir, *options, "--", *program],
            cwd=run_dir.parent,
            env={**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        )

    return run
