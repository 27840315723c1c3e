"""Episodes of alerts: a beginning and an end, each written once by whichever agent."""

from __future__ import annotations

import contextlib
from pathlib import Path

from monitoring import Run, read_records
from monitoring.agent.follow import follow
from monitoring.journal.alerts import Alerts


def written(directory: Path) -> list[tuple[object, ...]]:
    found = [alert for alert, _ in read_records(directory / "alerts.jsonl")]
    return [
        tuple(alert[name] for name in ("rule", "severity", "state", "subject", "message")) for alert in found
    ]


def test_episode_is_written_once_also_by_further_agents(tmp_path: Path) -> None:
    for _ in range(2):
        with contextlib.closing(Alerts(tmp_path)) as alerts:
            alerts.resolve("gpu_lost", "not fired before", subject="GPU-1")
            for _ in range(2):
                alerts.fire("gpu_lost", "error", "GPU 0 is lost", subject="GPU-0")
    assert written(tmp_path) == [("gpu_lost", "error", "firing", "GPU-0", "GPU 0 is lost")]
    for _ in range(2):
        with contextlib.closing(Alerts(tmp_path)) as alerts:
            alerts.resolve("gpu_lost", "no longer", subject="GPU-0")
    with contextlib.closing(Alerts(tmp_path)) as alerts:
        alerts.fire("gpu_lost", "error", "GPU 0 is lost", subject="GPU-0")
        alerts.fire("gpu_lost", "error", "GPU 0 is lost: of another reason", subject="GPU-0")
    assert written(tmp_path)[1:] == [
        ("gpu_lost", "info", "resolved", "GPU-0", "no longer"),
        ("gpu_lost", "error", "firing", "GPU-0", "GPU 0 is lost"),
        ("gpu_lost", "error", "firing", "GPU-0", "GPU 0 is lost: of another reason"),
    ]


def test_agent_resolves_what_a_killed_one_reported(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with contextlib.closing(Alerts(tmp_path / "run")) as alerts:
        alerts.fire("follower", "warning", "csv: OSError: full; it is tried again", subject="csv")
        alerts.fire("trainer", "error", "the training process is gone and wrote no end record")
    run = Run(tmp_path / "run", name="n", project="p", config={}, agent=False)
    run.log_step(1, train_loss=0.5)
    run.finish()
    for _ in range(2):
        assert follow(tmp_path / "run")
    assert sorted(map(str, written(tmp_path / "run")[2:])) == [
        str(("follower", "info", "resolved", "csv", "csv: takes records again")),
        str(("trainer", "info", "resolved", None, "another training process continues the run")),
    ]
