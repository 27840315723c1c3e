"""Rehearses a tracker: sends made-up metrics a real run's way, and compares what the tracker holds."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from monitoring.agent.follow import catch_up
from monitoring.errors import UserError
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import ALERTS, JOURNAL
from monitoring.journal.records import read_records
from monitoring.run import Run
from monitoring.trackers import TrackerPoint, journal_points

STEPS_AN_EPOCH = 100
EPOCHS = 3
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class Rehearsal:
    """The points that were sent to a tracker, and those read back from it."""

    run: RunInfo
    sent: list[TrackerPoint]
    received: list[TrackerPoint]
    records: int
    error: Exception | None
    """Why the tracker did not take everything."""

    @property
    def is_exact(self) -> bool:
        """Whether every point came back once, and none that was not sent."""
        received = sorted(self.received, key=_place)
        return self.error is None and received == sorted(self.sent, key=_place)

    def difference(self) -> str:
        """Return how the points that came back differ from those sent, in words."""
        if self.error is not None:
            return str(self.error)
        sent, received = set(self.sent), set(self.received)
        lost = [point for point in self.sent if point not in received]
        strange = [point for point in self.received if point not in sent]
        examples = [f"for example {point}" for point in (lost + strange)[:1]]
        doubled = len(self.received) - len(received)
        return ", ".join([f"{len(lost)} lost, {len(strange)} strange, {doubled} doubled", *examples])

    def hint(self) -> str:
        """Return what to try or read if they differ."""
        hint = self.error.hint if isinstance(self.error, UserError) else ""
        return hint or f"see {self.run.directory / ALERTS}"


def rehearse(
    tracker: str, options: Mapping[str, object], *, directory: Path, name: str, project: str
) -> Rehearsal:
    """Journal a made-up run in two attempts, deliver each with `catch_up`, and read the tracker back.

    MonitoringError for a tracker that is not installed or an option that it does not have.
    """
    for attempt, epochs in ((1, range(1, EPOCHS)), (2, range(EPOCHS, EPOCHS + 1))):
        with Run(
            directory,
            name=name,
            project=project,
            config={"FAKE": True, "LEARNING_RATE": LEARNING_RATE, "EPOCHS": EPOCHS},
            trackers={tracker: options},
            agent=False,
        ) as run:
            _train(run, epochs, status=INTERRUPTED if attempt == 1 else COMPLETE)
        deliveries = catch_up(directory)
    info = RunInfo.read(directory)
    records = [record for record, _ in read_records(directory / JOURNAL)]
    error = next((delivery.error for delivery in deliveries if delivery.name == tracker), None)
    received: list[TrackerPoint] = []
    if error is None:
        received = follower_module(tracker).read_back(info, follower_options(tracker, options))
    return Rehearsal(info, journal_points(records), received, len(records), error)


def _train(run: Run, epochs: range, *, status: str) -> None:
    """Losses that fall and level out with some noise, one of them not a number."""
    chance = random.Random(f"{epochs}")
    run.start(
        model={"name": "fake", "parameters": 61_706, "architecture": "none: these metrics are made up"},
        training={
            "num_steps": EPOCHS * STEPS_AN_EPOCH,
            "num_epochs": EPOCHS,
            "steps_per_epoch": STEPS_AN_EPOCH,
            "batch_size": 64,
            "optimizer": "fake",
            "schedule": "cosine",
        },
    )
    for epoch in epochs:
        losses = []
        for step in range((epoch - 1) * STEPS_AN_EPOCH + 1, epoch * STEPS_AN_EPOCH + 1):
            progress = step / (EPOCHS * STEPS_AN_EPOCH)
            loss = 0.05 + 2.25 * math.exp(-6 * progress) * chance.uniform(0.8, 1.2)
            losses.append(loss)
            run.log_step(
                step,
                train_loss=math.nan if step == STEPS_AN_EPOCH // 2 else loss,
                lr=LEARNING_RATE * (1 + math.cos(math.pi * progress)) / 2,
                grad_norm=loss * chance.uniform(0.5, 1.5),
                samples_per_sec=64 / 0.0035 * chance.uniform(0.9, 1.1),
                gpu_mem_allocated=None,
            )
        val = {"val_loss": losses[-1] * 1.1, "val_accuracy": 1 - losses[-1] / 3}
        run.log_eval(epoch * STEPS_AN_EPOCH, split="val", **val)
        run.log_epoch(epoch, global_step=epoch * STEPS_AN_EPOCH, train_loss=sum(losses) / len(losses), **val)
    if status == COMPLETE:
        run.finish("complete", **{f"best_{metric}": value for metric, value in val.items()})
    else:
        run.finish("interrupted")


def _place(point: TrackerPoint) -> tuple[int, str]:
    return point.seq, point.metric
