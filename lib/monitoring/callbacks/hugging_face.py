"""Callbacks of Hugging Face's Trainer (transformers 5, and what trl builds on it).

The Trainer hands the loss to `on_log` only, has gradients until `on_optimizer_step`, and by its own filter
(`logging_nan_inf_filter`) shows a NaN as the mean of the steps before: RunCallback turns that filter off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from monitoring.callbacks.described import adapter_fields, gradient_norm, model_fields
from monitoring.callbacks.open_run import OpenRun, RunSettings
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
from monitoring.telemetry.callback import TelemetryCallback
from monitoring.telemetry.pace import Pace, open_pace

# The Trainer's names -> those of step records; every other name stays.
STEP_NAMES = {"loss": "train_loss", "learning_rate": "lr"}
# By which the Trainer's last log, of the whole training, is known.
SUMMARY = "train_runtime"
# Prefix of what the Trainer measures -> split; `eval_loss` is recorded as `val_loss`.
SPLITS = {"eval": "val", "test": "test"}


class RunCallback(TrainerCallback):  # type: ignore[misc] # transformers is not typed
    """Records a training of the Trainer in a run directory; every process of it has a journal there.

    The run ends with the process, or with `close`, so that an evaluation after the training belongs to it.
    A training that resumes from a checkpoint is the run's next attempt.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        name: str | None = None,
        project: str | None = None,
        trackers: Mapping[str, Mapping[str, object]] | None = None,
        gpu_monitor: bool | Mapping[str, Any] = False,
        agent: bool = True,
    ) -> None:
        """`directory` is the Trainer's `output_dir` if it is not given; the rest is that of Run."""
        where = None if directory is None else Path(directory)
        self._settings = RunSettings(where, name, project, trackers or {}, gpu_monitor, agent)
        self._open: OpenRun | None = None
        self._pace: Pace | None = None
        self._filtered = True

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: object) -> None:
        """Open the run and write its start record. Errors: those of Run, before the first step."""
        self.close()
        settings = self._settings
        if settings.directory is None:
            settings.directory = Path(args.output_dir)
        settings.name = settings.name or getattr(args, "run_name", None)
        self._open = OpenRun(settings, args.to_sanitized_dict(), args.process_index)
        checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}").name
        self._open.run.start(
            model=model_fields(model),
            training=_training(args, state),
            **adapter_fields(model),
            **self._open.resumed(state.global_step, checkpoint),
        )
        self._filtered, args.logging_nan_inf_filter = args.logging_nan_inf_filter, False
        self._samples = _batch_size(args)
        self._pace = open_pace(args.device)
        self._norm: object = None

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: object
    ) -> None:
        """Measure the gradient norm of a step that is logged, where the Trainer, which clips, does not."""
        self._norm = None
        if model is not None and not args.max_grad_norm and _is_logged(args, state, state.global_step + 1):
            self._norm = gradient_norm(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._pace is not None:
            self._pace.step(self._samples)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: object
    ) -> None:
        """Record a step; of the last log, which is of the whole training, the end record has the fields."""
        if self._open is None or self._pace is None or logs is None:
            return
        if SUMMARY in logs:
            self._open.add_to_end(**{name: value for name, value in logs.items() if name != "epoch"})
        elif not any(name.startswith(f"{prefix}_") for name in logs for prefix in SPLITS):
            fields = {STEP_NAMES.get(name, name): value for name, value in logs.items()}
            fields = {"grad_norm": self._norm, **fields, **self._pace.read()}
            self._open.run.log_step(state.global_step, **fields)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: object
    ) -> None:
        self._record_split(state.global_step, metrics or {})

    def on_predict(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: object
    ) -> None:
        self._record_split(state.global_step, metrics or {})

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._open is not None:
            self._open.run.log_epoch(math.ceil(state.epoch), global_step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Record a checkpoint that is complete on disk."""
        if self._open is not None and state.is_world_process_zero:
            path = Path(args.output_dir, f"checkpoint-{state.global_step}")
            self._open.run.log_checkpoint(state.global_step, checkpoint_path=path)
        self._restart_pace()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        args.logging_nan_inf_filter = self._filtered
        if self._open is not None:
            self._open.is_trained = True
            if state.best_metric is not None:
                self._open.add_to_end(best_metric=state.best_metric, best_step=state.best_global_step)

    def close(self) -> None:
        """End the run; without it that happens when the process exits."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _record_split(self, step: int, metrics: Mapping[str, Any]) -> None:
        """An evaluation, and a prediction on a test set: each prefix is a split of its own."""
        for prefix, split in SPLITS.items():
            found = {
                f"{split}_{name.removeprefix(prefix + '_')}": value
                for name, value in metrics.items()
                if name.startswith(f"{prefix}_")
            }
            if found and self._open is not None:
                self._open.run.log_eval(step, split=split, **found)
        self._restart_pace()

    def _restart_pace(self) -> None:
        """What was done meanwhile is no training step."""
        if self._pace is not None:
            self._pace.restart()


class TelemetryTrainerCallback(TrainerCallback):  # type: ignore[misc] # the same
    """Has a TelemetryCallback time microsteps, steps and epochs of the Trainer, into RUN/telemetry/.

    With `include_timer_metrics` what it adds to the logs is seen by the callbacks after it, a RunCallback's
    trackers among them.
    """

    def __init__(self, directory: Path | str | None = None, **options: Any) -> None:
        """`directory` is the Trainer's `output_dir` if it is not given; `options` are TelemetryCallback's."""
        self._directory = directory
        self._options = options
        self.telemetry: TelemetryCallback | None = None
        """What it calls, from the beginning of the training on."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.telemetry = TelemetryCallback(Path(self._directory or args.output_dir), **self._options)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_epoch_begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_step_begin()

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_substep_end()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_step_end()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_epoch_end()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: object
    ) -> None:
        if self.telemetry is not None and logs is not None:
            logs.update(self.telemetry.on_log({"step": state.global_step, **logs}))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self.telemetry is not None:
            self.telemetry.on_train_end()


class GPUMonitoringCallback(TrainerCallback):  # type: ignore[misc] # transformers is not typed
    """Watches GPUs during a training: every step counts in Prometheus, each `log_interval`-th has a line.

    A line has the loss, learning rate and gradient norm that the Trainer logged last (`logging_steps`).
    """

    def __init__(self, gpu_monitor: GPUMonitor, log_interval: int = 10) -> None:
        """ValueError for an interval below 1 step."""
        if log_interval < 1:
            raise ValueError(f"log_interval={log_interval} is below 1 step")
        self._callback = TrainingMonitorCallback(gpu_monitor)
        self._interval = log_interval
        self._logged: dict[str, Any] = {}
        self._pending: dict[str, Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Start the monitor, if nobody has."""
        self._samples = _batch_size(args)
        self._callback.on_train_begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self._finish_step()
        self._callback.on_step_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Time the step; it is recorded when the Trainer may have logged its loss."""
        self._pending = {
            "step": state.global_step,
            "epoch": state.epoch,
            "seconds": self._callback.step_seconds(),
            "line": state.global_step % self._interval == 0,
        }

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: object
    ) -> None:
        self._logged |= {name: value for name, value in (logs or {}).items() if name != "epoch"}

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Stop the monitor, if `on_train_begin` started it."""
        self._finish_step()
        self._callback.on_train_end()

    def _finish_step(self) -> None:
        if self._pending is None:
            return
        seconds = self._pending["seconds"]
        self._callback.on_step_end(
            **self._pending,
            loss=self._logged.get("loss"),
            lr=self._logged.get("learning_rate"),
            grad_norm=self._logged.get("grad_norm"),
            throughput=self._samples / seconds if seconds else None,
        )
        self._pending = None


def _training(args: Any, state: Any) -> dict[str, object]:
    """How it is trained, of the Trainer's arguments."""
    epochs = math.ceil(args.num_train_epochs) if args.max_steps <= 0 else state.num_train_epochs
    return {
        "num_steps": state.max_steps,
        "num_epochs": epochs,
        "steps_per_epoch": math.ceil(state.max_steps / epochs) if epochs else None,
        "batch_size": _batch_size(args),
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "schedule": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
    }


def _batch_size(args: Any) -> int:
    """Samples of an optimizer step, of all processes."""
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


def _is_logged(args: Any, state: Any, step: int) -> bool:
    """Whether the Trainer logs after a step, by steps."""
    strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
    every = state.logging_steps
    return strategy == "steps" and bool((step == 1 and args.logging_first_step) or step % every == 0)
