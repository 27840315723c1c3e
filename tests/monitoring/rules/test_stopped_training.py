"""A real training that is stopped, goes on and is killed, and what its agent says of that."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from monitoring import read_records

from ...waiting import wait_until
from ...warm_python import WarmPython
from ..conftest import wait_for_delivery

LIMIT = 1.0

TRAIN = """
import sys, time
from pathlib import Path
from monitoring import Run

run = Run(Path(sys.argv[1]), name="n", project="p", config={"ALERT_STALLED_SECONDS": float(sys.argv[2])})
run.start(model={"name": "m", "parameters": 1, "architecture": "a"}, training={"num_steps": 10**6})
for step in range(1, 10**6):
    run.log_step(step, train_loss=1.0)
    time.sleep(0.05)
"""


def alerts(directory: Path) -> list[dict[str, Any]]:
    return [alert for alert, _ in read_records(directory / "alerts.jsonl")]


def test_stopped_training_is_an_alert_until_it_goes_on_and_a_killed_one_is_another(
    run_dir: Path, warm_monitoring: WarmPython
) -> None:
    trainer = warm_monitoring.start(["-c", TRAIN, run_dir, LIMIT])
    journal = run_dir / "metrics.jsonl"
    wait_until(lambda: len(journal.read_bytes().splitlines()) > 3, "some steps")
    before = len(alerts(run_dir)) if (run_dir / "alerts.jsonl").exists() else 0
    trainer.send_signal(signal.SIGSTOP)
    wait_until(lambda: len(alerts(run_dir)) > before, "an alert")
    trainer.send_signal(signal.SIGCONT)
    wait_until(lambda: alerts(run_dir)[-1].get("state") == "resolved", "its end")
    trainer.kill()
    trainer.wait()
    wait_until(lambda: alerts(run_dir)[-1]["rule"] == "trainer", "the other alert")
    wait_for_delivery(run_dir)
    *stalled, last = alerts(run_dir)
    # on a machine that is busy enough, a training that is not stopped may stall, too
    states = ["firing", "resolved"] * len(stalled)
    assert len(stalled) >= 2
    assert [(alert["rule"], alert["state"]) for alert in stalled] == [
        ("stalled", state) for state in states[: len(stalled)]
    ]
    assert all(alert["value"] > LIMIT for alert in stalled)
    assert last["message"] == "the training process is gone and wrote no end record"
