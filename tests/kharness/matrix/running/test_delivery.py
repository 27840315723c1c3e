"""The wait at the end for what follows a run's records."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kharness.matrix.running.delivery import wait_for_delivery
from kharness.matrix.running.signals import Signals
from monitoring import Run
from monitoring.agent.lock import only_agent


@pytest.mark.parametrize(
    ("trackers", "who"), [({}, "metrics.csv and the alerts"), ({"tensorboard": {}}, "the trackers")]
)
def test_wait_is_for_what_the_run_has(
    tmp_path: Path, trackers: dict[str, dict[str, object]], who: str
) -> None:
    with Run(tmp_path / "run", trackers=trackers, agent=False) as run:
        run.log_step(1, train_loss=0.5)
    said: list[str] = []
    with Signals() as signals, only_agent(run.directory, wait=0, stop=threading.Event()):
        lacking = wait_for_delivery([run.directory], signals, said.append, patience=2)
    assert said == [f"waiting up to 2 s for {who} to take the last points"]
    assert list(lacking) == [run.directory]
