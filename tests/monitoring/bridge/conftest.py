"""The bridge and programs that report by trackers, as forks of an interpreter that has imported these."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ...conftest import OF_AGENTS
from ...warm_python import WarmPython

Bridged = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def warm_bridge() -> Iterator[WarmPython]:
    """All trackers but Trackio, which reads when it is imported where its folder is."""
    trackers = ("torch.utils.tensorboard", "wandb", "mlflow", "mlflow.store.tracking.sqlalchemy_store")
    warm = WarmPython(
        *("monitoring.run", "monitoring.bridge.*", *OF_AGENTS, *trackers),
        MLFLOW_DISABLE_TELEMETRY="true",
        MLFLOW_LOGGING_LEVEL="WARNING",
    )
    yield warm
    warm.close()


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
