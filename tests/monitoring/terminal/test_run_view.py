"""What the dashboard shows of a run, from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring import Run
from monitoring.journal.alerts import Alerts
from monitoring.terminal.run_view import RunView


@pytest.fixture
def run(run_dir: Path) -> Path:
    with Run(run_dir, name="n", project="p", config={}, agent=False):
        return run_dir


def test_alert_ends_when_its_subject_is_well_again(run: Path) -> None:
    view, alerts = RunView(run), Alerts(run)
    shown = []
    for rule, severity, subject in (
        ("gpu_lost", "error", "GPU-1"),
        ("gpu_error", "error", "GPU-2"),
        ("gpu_back", "info", "GPU-2"),
        ("gpu_xid", "error", "GPU-2"),
        ("gpu_back", "info", "GPU-1"),
        ("gpu_monitor", "warning", None),
        ("gpu_monitor", "info", None),
    ):
        alerts.add(rule, severity, f"{rule} {subject}", subject=subject)  # type: ignore[arg-type]
        view.look()
        shown.append(view.alert)
    alerts.close()
    lost, error, xid = "gpu_lost GPU-1", "gpu_error GPU-2", "gpu_xid GPU-2"
    assert shown == [lost, error, lost, xid, xid, "gpu_monitor None", xid]


def test_alerts_of_single_gpus_end_when_all_answer_again(run: Path) -> None:
    alerts = Alerts(run)
    for subject in ("GPU-1", "GPU-2", None):
        alerts.add("gpu_error", "error", "cannot be read", subject=subject)
    alerts.add("gpu_back", "info", "all 2 GPUs answer again", subject=None)
    alerts.close()
    view = RunView(run)
    view.look()
    assert view.alert is None


def test_rule_that_is_resolved_fires_no_longer(run: Path) -> None:
    view, alerts = RunView(run), Alerts(run)
    alerts.add("loss_plateau", "warning", "no progress", state="firing", subject=None)
    view.look()
    assert view.alert == "no progress"
    alerts.add("loss_plateau", "info", "no longer: no progress", state="resolved", subject=None)
    alerts.close()
    view.look()
    assert view.alert is None
