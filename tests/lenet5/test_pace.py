"""Every step record has its step's times, on a CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitoring.telemetry.phases import PHASES

Train = Callable[..., Any]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_step_has_its_times_and_together_they_fit_into_the_training(train: Train, device: str) -> None:
    """Two epochs with evaluations between, and a checkpoint: the last steps before them have theirs, too."""
    done = train("--device", device, "--batch-size", "900", "--num-epochs", "2", "--log-every", "2")
    assert (done.code, done.err) == (0, "")
    (start,), steps, (end,) = (done.records(event) for event in ("start", "step", "end"))
    assert start["device"].startswith(device)
    assert (start["numerics"]["gpu"] is None) == (device == "cpu")
    assert [step["global_step"] for step in steps] == [2, 4, 6, 8, 10, 12]
    for step in steps:
        assert step["sec_per_step"] * step["samples_per_sec"] == pytest.approx(900)
        assert 0 < sum(step[phase] for phase in PHASES) <= 1.001 * step["sec_per_step"]
        assert (step["gpu_mem_allocated"] is None) == (device == "cpu")
    assert sum(2 * step["sec_per_step"] for step in steps) <= end["training_seconds"]
