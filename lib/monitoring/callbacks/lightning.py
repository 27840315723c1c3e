"""A Logger and a Callback of Lightning: the one records what is logged, the other how the training goes.

    logger = LightningLogger("results/first", trackers={"trackio": {}})
    Trainer(logger=logger, callbacks=[LightningRun(logger)]).fit(module, data)

The package is `lightning`, not the older `pytorch_lightning`.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from monitoring.callbacks.described import adapter_fields, gradient_norm, model_fields
from monitoring.callbacks.logged import Logged
from monitoring.callbacks.open_run import OpenRun, RunSettings
from monitoring.run import Run
from monitoring.telemetry.pace import Pace, open_pace


class LightningLogger(Logger):  # type: ignore[misc] # lightning is not typed for us
    """Records in a run directory what the module logs; `experiment` is the Run.

    The run ends with the process, or with `close`, so that `trainer.test` after `fit` belongs to it.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        name: str | None = None,
        project: str | None = None,
        trackers: Mapping[str, Mapping[str, object]] | None = None,
        gpu_monitor: bool | Mapping[str, Any] = False,
        agent: bool = True,
    ) -> None:
        """All but `directory` is that of Run."""
        super().__init__()
        self._settings = RunSettings(Path(directory), name, project, trackers or {}, gpu_monitor, agent)
        self._open: OpenRun | None = None
        self._config: dict[str, Any] = {}
        self._logged = Logged()
        self.step_fields: dict[str, object] = {}
        """What a LightningRun measured; the next step record takes it."""
        self.steps_done: int | None = None
        """Of a training that has ended, by a LightningRun: until then Lightning counts one less."""

    @property
    def name(self) -> str:
        return self._settings.name or Path(str(self._settings.directory)).resolve().name

    @property
    def version(self) -> str:
        """The run's id, empty before it is open."""
        return "" if self._open is None else self._open.run.run_id

    @property
    def save_dir(self) -> str:
        return str(self._settings.directory)

    @property
    def experiment(self) -> Run:
        """The run, which is opened if it was not. Errors: those of Run."""
        return self.opened().run

    def opened(self, rank: int = 0) -> OpenRun:
        if self._open is None:
            self._open = OpenRun(self._settings, self._config, rank)
        return self._open

    def log_hyperparams(self, params: Any, *_: object, **__: object) -> None:
        """Keep the module's hyperparameters for the run's configuration."""
        self._config |= vars(params) if isinstance(params, Namespace) else dict(params or {})

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record a step, or an evaluation if the names say so; steps are counted from 1, as everywhere."""
        number = self.steps_done if step is None or self.steps_done is not None else step + 1
        self._logged.record(self.experiment, metrics, number, **self.step_fields)
        self.step_fields = {}

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Record the checkpoint that Lightning has just written."""
        path = getattr(checkpoint_callback, "last_model_path", "") or checkpoint_callback.best_model_path
        step = getattr(checkpoint_callback, "_last_global_step_saved", 0)
        if path:
            self.experiment.log_checkpoint(step, checkpoint_path=Path(path))

    def close(self, error: BaseException | None = None) -> None:
        """End the run; without it that happens when the process exits."""
        if self._open is not None:
            self._open.close(error)
            self._open = None


class LightningRun(Callback):  # type: ignore[misc] # the same
    """Adds to a LightningLogger's run what the module does not log: the model, the pace, the end."""

    def __init__(self, logger: LightningLogger) -> None:
        self._logger = logger
        self._pace: Pace | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Write the start record. Errors: those of Run, before the first step."""
        self._logger.steps_done = None
        found = self._logger.opened(trainer.global_rank)
        resumed = found.resumed(trainer.global_step, Path(trainer.ckpt_path or "").name or None)
        found.run.start(
            model=model_fields(pl_module), training=_training(trainer), **adapter_fields(pl_module), **resumed
        )
        self._pace = open_pace(trainer.strategy.root_device)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Measure the gradient norm, before clipping, of a step that is logged; no device is waited for."""
        if (trainer.global_step + 1) % trainer.log_every_n_steps == 0:
            self._logger.step_fields["grad_norm"] = gradient_norm(pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._pace is not None:
            self._pace.step((_batch_size(batch) or 0) * trainer.world_size)
            if trainer.global_step % trainer.log_every_n_steps == 0:
                self._logger.step_fields |= self._pace.read()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._pace is not None:  # it is no training step
            self._pace.restart()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._logger.experiment.log_epoch(trainer.current_epoch + 1, global_step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._logger.opened().is_trained = True
        self._logger.steps_done = trainer.global_step

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._logger.close(exception)


def _training(trainer: Any) -> dict[str, object]:
    """How it is trained, as far as a trainer knows."""
    steps = trainer.estimated_stepping_batches
    epochs = trainer.max_epochs
    return {
        "num_steps": int(steps) if math.isfinite(steps) else None,
        "num_epochs": epochs if epochs is not None and epochs > 0 else None,
        "steps_per_epoch": math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        if math.isfinite(trainer.num_training_batches)
        else None,
        "optimizer": ", ".join(type(optimizer).__name__.lower() for optimizer in trainer.optimizers),
    }


def _batch_size(batch: Any) -> int | None:
    """Of the first tensor in a batch; None of one without."""
    while not hasattr(batch, "shape"):
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, list | tuple) and batch:
            batch = batch[0]
        else:
            return None
    return int(batch.shape[0]) if batch.shape else 1
