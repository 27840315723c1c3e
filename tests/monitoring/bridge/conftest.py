"""The bridge and programs that report by trackers, as forks of an interpreter that has imported these."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ...made_once import made_once
from ...warm_python import WarmPython

Bridged = Callable[..., subprocess.CompletedProcess[str]]

PROGRAMS = Path(__file__).with_name("programs.py")
STEPS = 12


def ours(kind: str, steps: int = STEPS, pause: float = 0.0) -> list[object]:
    return [sys.executable, PROGRAMS, kind, steps, pause]


@pytest.fixture
def bridged(warm_monitoring: WarmPython) -> Bridged:
    """Run a program to its end under the bridge."""
    return bridged_by(warm_monitoring)


@pytest.fixture
def bridged_tracker(warm_bridge: WarmPython) -> Bridged:
    """The same for a program with a tracker: a fork of an interpreter that has it takes longer to make."""
    return bridged_by(warm_bridge)


def bridged_by(warm: WarmPython) -> Bridged:
    def run(run_dir: Path, *program: object, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return warm.run(
            ["-m", "monitoring.bridge", run_dir, *options, "--", *program],
            cwd=run_dir.parent,
            env={**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        )

    return run


@pytest.fixture
def stored_by(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_bridge: WarmPython
) -> Callable[[str], Path]:
    """The folder with what a program has stored that ran by itself: each kind runs once for all tests."""

    def run(kind: str, folder: Path) -> None:
        if kind == "mlflow":
            shutil.copy(request.getfixturevalue("empty_database"), folder / "mlflow.db")
        stores = {
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(folder),
            "TRACKIO_DIR": str(folder / "trackio"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        }
        assert warm_bridge.run(ours(kind)[1:], cwd=folder, env={**os.environ, **stores}).returncode == 0

    return lambda kind: made_once(tmp_path_factory, f"stored-by-{kind}", functools.partial(run, kind))
