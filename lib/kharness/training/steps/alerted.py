"""The samples of a step that an alert is about, such as a spike of the loss."""

from __future__ import annotations

import time

from kharness.training.data import Batches
from kharness.training.distributed.world import World
from monitoring import Run
from monitoring.journal.files import ALERTS
from monitoring.journal.tail import RecordTail

# Rules whose alerts begin at a step that its samples may explain.
RULES = ("loss_spike", "gradient_norm")

# Seconds between looks for alerts.
LOOK_EVERY = 2.0


class AlertedSteps:
    """Names the samples of such steps in `alert_samples` records, between two steps.

    The agent, which judges records, knows no samples; a training knows those of any step by seed, epoch and
    step alone. So a step costs a look at the clock, and an alert as much as the begin of an epoch.
    """

    def __init__(self, run: Run, batches: Batches, world: World) -> None:
        self._run, self._batches, self._world = run, batches, world
        self._tail = RecordTail(run.directory / ALERTS)
        self._next_look = 0.0
        if world.is_main:
            for _ in self._tail.new():  # of earlier attempts
                pass

    def look(self, step: int, *, at_once: bool = False) -> None:
        """Record the samples of alerts that are new; `step` steps are done. Nothing but on rank 0."""
        now = time.monotonic()
        if not self._world.is_main or (now < self._next_look and not at_once):
            return
        self._next_look = now + LOOK_EVERY
        try:
            alerts = list(self._tail.new())
        except OSError:  # a disk that does not answer now
            return
        for alert in alerts:
            at = alert.get("global_step")
            if alert.get("state") == "firing" and isinstance(at, int) and 1 <= at <= step:
                self._record(at, str(alert.get("rule")), alert.get("seq"))

    def _record(self, step: int, rule: str, alert_seq: object) -> None:
        if rule not in RULES:
            return
        batch = self._batches.of_step(step)
        self._run.log_alert_samples(
            step,
            rule=rule,
            alert_seq=alert_seq,
            sample_indices=batch.tolist(),
            samples_per_rank=[len(part) for part in self._world.parts(batch)],
        )
        print(f"step {step}: {rule}; make inspect-batch RUN={self._run.directory} STEP={step}", flush=True)
