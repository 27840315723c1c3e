"""Callbacks of one rank of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitoring.telemetry import TelemetryCallback


@pytest.fixture
def made_callback() -> Any:
    """Makes a callback that writes at each log interval."""

    def made(directory: Path, **options: Any) -> TelemetryCallback:
        return TelemetryCallback(directory, **{"write_every": 0.0, **options})

    return made
