"""Alerts in trackers: each once, with what `trackio.alert` and W&B's `run.alert` bring there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from monitoring.agent.follow import catch_up
from monitoring.journal.alerts import Alerts
from monitoring.trackers import trackio, wandb
from monitoring.trackers._wandb_log import read_log
from monitoring.trackers._wandb_records import ALERT_WAIT_MS

from .conftest import Followed, MakeFollowed, WandbServer, new_run, sync

Shown = list[tuple[str, str, str, int | None]]

# Title, text, level and step of what trackers show of `raise_alerts`.
EXPECTED: Shown = [
    ("loss_spike", "the loss leaps\nfar", "warn", 7),
    ("nonfinite", 'train_loss is "NaN" ü', "error", 9),
    ("loss_spike resolved", "no longer: the loss leaps", "info", 10),
]


def raise_alerts(directory: Path) -> None:
    with contextlib.closing(Alerts(directory)) as alerts:
        alerts.add("loss_spike", "warning", "the loss leaps\nfar", state="firing", global_step=7)
        alerts.add("gpu_back", "info", "it is back")
        alerts.add("follower", "warning", "wandb: refuses a record", state="firing")
        alerts.add("nonfinite", "error", 'train_loss is "NaN" ü', state="firing", global_step=9)
        alerts.add("loss_spike", "info", "no longer: the loss leaps", state="resolved", global_step=10)


def in_trackio(run: Followed) -> Shown:
    """Alerts read by Trackio's own reader, oldest first."""
    from trackio.sqlite_storage import SQLiteStorage

    project = trackio.project_name(run.info.project)
    found = SQLiteStorage.get_alerts(project, run_id=run.info.run_id)
    return [(it["title"], it["text"], it["level"], it["step"]) for it in reversed(found)]


def in_wandb(run: Followed) -> Shown:
    """Alerts in W&B's own messages, without the title's disambiguation and the step in the text."""
    [log] = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    found = (wandb._record(stored.data) for stored in read_log(log))
    return [
        of_wandb(record.alert.title, record.alert.text, record.alert.level, run)
        for record in found
        if record.HasField("alert")
    ]


def of_wandb(title: str, text: str, level: str, run: Followed) -> tuple[str, str, str, int | None]:
    rule, _, own = title.rpartition(" (")
    assert own.startswith(f"{run.info.run_id[:8]}-")
    text, _, step = text.removesuffix(")").rpartition(" (step ")
    return rule, text, level.lower(), int(step)


HELD = {"trackio": in_trackio, "wandb": in_wandb}


@pytest.mark.parametrize("tracker", HELD)
def test_tracker_holds_each_alert_once_also_after_restarts(followed: MakeFollowed, tracker: str) -> None:
    run = followed(tracker)
    run.train(10, status="interrupted")
    raise_alerts(run.directory)
    assert run.follow().returncode == 0
    assert HELD[tracker](run) == EXPECTED

    (run.directory / "followers.json").unlink()  # now only the tracker itself can tell
    run.train(3, first=11)
    assert run.follow().returncode == 0
    points = sorted(run.received(), key=lambda point: (point.seq, point.metric))
    assert points == sorted(run.sent(), key=lambda point: (point.seq, point.metric))
    assert HELD[tracker](run) == EXPECTED


@pytest.mark.parametrize("tracker", HELD)
def test_tracker_that_is_added_later_gets_the_alerts(followed: MakeFollowed, tracker: str) -> None:
    run = followed("tensorboard")
    run.train(10)
    raise_alerts(run.directory)
    for _ in range(2):
        assert [delivery.error for delivery in catch_up(run.directory, {tracker: {}})] == [None, None]
    assert HELD[tracker](run) == EXPECTED


@pytest.mark.parametrize("tracker", HELD)
def test_what_a_rule_finds_in_the_last_step_reaches_the_tracker(followed: MakeFollowed, tracker: str) -> None:
    run = followed(tracker)
    with new_run(run.directory, "p", tracker) as training:
        training.log_step(1, train_loss=float("nan"))
    assert run.follow().returncode == 0
    found: Any = [(alert[0], alert[2], alert[3]) for alert in HELD[tracker](run)]
    assert found == [("nonfinite", "error", 1)]


def test_sync_gives_wandb_each_alert_under_a_title_of_its_own(
    followed: MakeFollowed, wandb_server: WandbServer
) -> None:
    """A log that is uploaded again repeats its alerts; by their titles W&B sends none a second time."""
    run = followed("wandb")
    run.train(10)
    raise_alerts(run.directory)
    assert run.follow().returncode == 0
    sync(run, wandb_server.environment())
    assert len(wandb_server.alerts) == len(EXPECTED)
    run.train(3, first=11)
    assert run.follow().returncode == 0
    sync(run, wandb_server.environment())
    sent = [of_wandb(it["title"], it["text"], it["severity"], run) for it in wandb_server.alerts]
    assert sent == 2 * EXPECTED
    assert len({it["title"] for it in wandb_server.alerts}) == len(EXPECTED)
    assert {it["waitDuration"] for it in wandb_server.alerts} == {ALERT_WAIT_MS}
    assert {it["runName"] for it in wandb_server.alerts} == {run.info.run_id}
