"""The entries of a verbose log, from what a training does and how the machine is used.

Each method takes one event and returns the entries that the level writes of it. Times are UTC epoch seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from monitoring.journal.end_status import COMPLETE
from monitoring.journal.records import Record, as_number
from monitoring.verbose_logging.levels import Verbosity
from monitoring.verbose_logging.resources import iso_time
from monitoring.verbose_logging.trends import Crossings, StepTimes, Trend

# How messages name a loss.
LOSSES = ("loss", "train_loss")


class Entries:
    """Makes the entries of one training; one thread calls it."""

    def __init__(self, level: Verbosity) -> None:
        self._level = level
        self._usage: Record = {}
        self._trends: dict[str, Trend] = {}
        self._times = StepTimes()
        self._crossings = Crossings()
        self._num_steps: int | None = None
        self._samples_per_step: float | None = None
        self._batch: Record = {}
        self._began: float | None = None
        self._first_step: int | None = None
        self._step: int | None = None
        self._epoch: int | None = None
        self._in_evaluation = False
        self._predictions = 0

    @property
    def last_step(self) -> int:
        """The last step; 0 before the first."""
        return self._step or 0

    def system(self, time: float, info: Mapping[str, object]) -> list[Record]:
        return self._entry(time, "system_initialization", "🔧 Verbose logging started", system_info=info)

    def initialized(self, time: float, facts: Mapping[str, object]) -> list[Record]:
        """`facts` are the arguments, the model and what else was known before the training."""
        return self._entry(time, "training_initialization", "🚀 Training initialized", **facts)

    def train_begin(
        self, time: float, step: int, num_steps: int | None, samples_per_step: float | None, facts: Record
    ) -> list[Record]:
        self._num_steps, self._samples_per_step = num_steps or None, samples_per_step
        self._batch = {key: facts[key] for key in ("batch", "batch_size") if key in facts}
        self._began, self._first_step, self._step, self._epoch = time, step, step, None
        self._times = StepTimes()
        steps = f" of {num_steps:,} steps" if num_steps else ""
        return self._entry(
            time,
            "training_start",
            f"🏁 Training{steps} started" if not step else f"🏁 Training{steps} resumes after step {step}",
            step=step,
            num_steps=self._num_steps,
            **facts,
            **self._shown_usage(),
        )

    def epoch_begin(self, time: float, step: int, epoch: float | None) -> list[Record]:
        self._epoch = self._begun(epoch)
        return self._entry(
            time, "epoch_begin", f"📚 Epoch {self._epoch} started", step=step, epoch=self._epoch
        )

    def epoch_end(
        self, time: float, step: int, epoch: float | None, metrics: Record | None = None
    ) -> list[Record]:
        self._epoch = _epoch_of(epoch)
        return self._entry(
            time,
            "epoch_complete",
            f"✅ Epoch {self._epoch} completed",
            step=step,
            epoch=self._epoch,
            timing=self._timing(time, step, None),
            **({"metrics": metrics} if metrics else {}),
            **self._shown_usage(),
        )

    def step_begin(self, time: float, step: int, epoch: float | None) -> list[Record]:
        """Return the entry of a step; `step` counts those done before it."""
        number = step + 1
        return self._entry(
            time,
            "step_begin",
            f"▶️ Step {number} started",
            step=number,
            epoch=self._begun(epoch),
            **self._batch,
            **self._shown_usage(),
        )

    def batch_end(self, time: float, step: int, epoch: float | None) -> list[Record]:
        """Return the entry of a micro-batch, of several in a step; `step` counts those done before it."""
        message = f"📦 Batch of step {step + 1} completed"
        return self._entry(time, "batch_complete", message, step=step + 1, epoch=self._begun(epoch))

    def step_end(
        self, time: float, step: int, epoch: float | None, seconds: float | None, *, metrics: Record
    ) -> list[Record]:
        self._step, self._epoch = step, _epoch_of(epoch)
        usual = self._times.usual
        is_slow = self._times.add(step, time, seconds)
        loss = next((metrics[name] for name in LOSSES if name in metrics), None)
        self._trend("loss", time, loss)
        self._trend("step_time", time, seconds)
        found: list[Record] = []
        if is_slow and usual and seconds:
            found = self._entry(
                time,
                "performance_anomaly",
                f"⚠️ Step {step} took {seconds:.3f} s, {seconds / usual:.1f} times the usual {usual:.3f} s",
                "WARNING",
                step=step,
                epoch=self._epoch,
                step_time_seconds=seconds,
                usual_step_time_seconds=usual,
            )
        if not self._level.step_every or step % self._level.step_every:
            return found
        number = as_number(loss)
        shown_loss = "" if number is None else f" - Loss: {number:.6f}"
        return found + self._entry(
            time,
            "training_step_complete",
            f"✅ Step {step} completed{shown_loss}",
            step=step,
            epoch=self._epoch,
            timing=self._timing(time, step, seconds),
            metrics=metrics,
            performance=self._performance(seconds),
            **self._shown_usage(),
            **self._shown_trends(),
        )

    def log(self, time: float, step: int, epoch: float | None, logs: Record) -> list[Record]:
        self._epoch = _epoch_of(epoch)
        message = f"📊 Metrics of step {step}"
        about = {"step": step, "epoch": self._epoch, "metrics": logs}
        return self._entry(time, "training_metrics_update", message, **about)

    def saved(self, time: float, step: int, facts: Record) -> list[Record]:
        self._times.restart()  # the time of saving is no step's
        message = f"💾 Checkpoint saved at step {step}"
        return self._entry(time, "model_checkpoint_save", message, step=step, epoch=self._epoch, **facts)

    def prediction_step(self, time: float, step: int) -> list[Record]:
        found = [] if self._in_evaluation else self._begin_evaluation(time, step)
        self._predictions += 1
        message = f"🔍 Prediction step {self._predictions}"
        about = {"step": step, "epoch": self._epoch, "prediction_step": self._predictions}
        return found + self._entry(time, "prediction_step", message, **about)

    def evaluated(
        self, time: float, step: int, metrics: Record, *, is_known_to_begin: bool = True
    ) -> list[Record]:
        """Where it is not known when the evaluation began, no entry says so."""
        found = [] if self._in_evaluation or not is_known_to_begin else self._begin_evaluation(time, step)
        self._in_evaluation, self._predictions = False, 0
        self._times.restart()
        loss = as_number(metrics.get("eval_loss", metrics.get("val_loss")))
        shown_loss = "" if loss is None else f" - Loss: {loss:.6f}"
        message = f"✅ Evaluation completed{shown_loss}"
        about = {"step": step, "epoch": self._epoch, "metrics": metrics}
        return found + self._entry(time, "evaluation_complete", message, **about)

    def train_end(self, time: float, step: int, facts: Record | None = None) -> list[Record]:
        seconds = None if self._began is None else time - self._began
        steps = step - (self._first_step or 0)
        statistics: Record = {
            "total_steps": step,
            "steps_done": steps,
            "total_seconds": seconds,
            "avg_seconds_per_step": seconds / steps if seconds is not None and steps > 0 else None,
        }
        status = (facts or {}).get("status") or COMPLETE
        is_complete = status == COMPLETE
        return self._entry(
            time,
            "training_complete",
            f"🎉 Training completed after step {step}"
            if is_complete
            else f"❌ Training ended after step {step}: {status}",
            "INFO" if is_complete else "WARNING",
            step=step,
            epoch=self._epoch,
            statistics=statistics,
            **(facts or {}),
            **self._shown_usage(),
        )

    def usage(self, time: float, usage: dict[str, Any]) -> list[Record]:
        """Take a reading of the machine; return a warning for each limit that is crossed."""
        self._usage = usage
        for name, value in _trended(usage, in_detail=self._level.has_all_trends):
            self._trend(name, time, value)
        found: list[Record] = []
        for message, facts in self._crossings.new(usage):
            about: Record = {"step": self._step, "epoch": self._epoch, **facts, **self._shown_usage()}
            found += self._entry(time, "resource_warning", message, "WARNING", **about)
        return found

    def _begun(self, epoch: float | None) -> int | None:
        """Return the epoch, counted from 1, that goes on when this fraction of epochs is done."""
        # a quotient of steps may lie a rounding error below the whole number
        return self._epoch if epoch is None else math.floor(epoch + 1e-9) + 1

    def _begin_evaluation(self, time: float, step: int) -> list[Record]:
        self._in_evaluation, self._predictions = True, 0
        message = f"🔍 Evaluation started at step {step}"
        return self._entry(
            time, "evaluation_start", message, step=step, epoch=self._epoch, **self._shown_usage()
        )

    def _entry(
        self, time: float, kind: str, message: str, severity: str = "INFO", /, **fields: object
    ) -> list[Record]:
        if kind not in self._level.types:
            return []
        head: Record = {"timestamp": iso_time(time), "type": kind, "level": severity, "message": message}
        return [{**head, **fields}]

    def _timing(self, time: float, step: int, seconds: float | None) -> Record:
        left = self._times.seconds_left(step, self._num_steps)
        return {
            "step_time_seconds": seconds,
            "avg_step_time_seconds": self._times.average,
            "eta_minutes": None if left is None else left / 60,
            "estimated_completion": None if left is None else iso_time(time + left),
        }

    def _performance(self, seconds: float | None) -> Record:
        pace, samples = self._times.pace(), self._samples_per_step
        return {
            "steps_per_second": 1 / pace if pace else None,
            "samples_per_second": samples / pace if samples and pace else None,
            "step_share": min(1.0, seconds / pace) if seconds is not None and pace else None,
        }

    def _shown_usage(self) -> Record:
        return {"resource_usage": self._usage} if self._level.has_usage and self._usage else {}

    def _trend(self, name: str, time: float, value: object) -> None:
        if self._level.has_usage:
            self._trends.setdefault(name, Trend()).add(time, value)

    def _shown_trends(self) -> Record:
        in_detail = self._level.has_all_trends
        found: Record = {}
        for name, trend in self._trends.items():
            if in_detail or name in ("memory_usage", "cpu_usage"):
                shown = trend.shown(in_detail=in_detail)
                found |= {f"{name}_trend": shown} if shown else {}
        return {"trends": found} if found else {}


def _epoch_of(epoch: float | None) -> int | None:
    """Return the epoch, counted from 1, of a step that ends at this fraction of epochs."""
    return None if epoch is None else max(1, math.ceil(epoch - 1e-9))


def _trended(usage: dict[str, Any], *, in_detail: bool) -> list[tuple[str, object]]:
    found = [
        ("memory_usage", usage.get("memory", {}).get("usage_percent")),
        ("cpu_usage", usage.get("cpu", {}).get("usage_percent")),
    ]
    if in_detail:
        for place, device in enumerate(usage.get("gpu", {}).get("devices", ())):
            index = device.get("index", place)
            found.append((f"gpu_{index}_memory_usage", device.get("memory_usage_percent")))
    return found
