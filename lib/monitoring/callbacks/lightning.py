"""A Logger and a Callback of Lightning: the one records what is logged, the other how the training goes.

    logger = LightningLogger("results/first", trackers={"trackio": {}})
    Trainer(logger=logger, callbacks=[LightningRun(logger)]).fit(module, data)

The package is `lightning`, not the older `pytorch_lightning`.
"""

from __future__ import annotations

import functools
import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from monitoring.callbacks.described import adapter_fields, gradient_norm, model_config, model_fields
from monitoring.callbacks.logged import has_step, record
from monitoring.callbacks.open_run import UNKNOWN_MODEL, Begun, CallbackRuns, OpenRun, Resumed, RunSettings
from monitoring.callbacks.places import named_directory
from monitoring.callbacks.throughput import Throughput, flops_of_module, samples_in, tokens_in
from monitoring.run import Run


class LightningLogger(Logger):  # type: ignore[misc] # lightning is not typed for us
    """Records in run directories what modules log; `experiment` is the Run. It adds a LightningRun itself.

    A `fit` is a new run (`results/first`, then `results/first-2`), unless it resumes from a checkpoint: then
    it is the next attempt of the run that wrote it. What is validated or tested before, after or without one
    is recorded too. The run ends with the process, with `close`, or when the next one begins.
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
        """The arguments but `directory` are those of Run."""
        super().__init__()
        self._settings = RunSettings(Path(directory), name, project, trackers or {}, gpu_monitor, agent)
        self.runs = CallbackRuns(self._settings)
        self._config: dict[str, Any] = {}
        self.step_fields: dict[str, object] = {}
        """Fields that a LightningRun measured, for the next step record."""
        self.progress = Progress()

    @property
    def name(self) -> str:
        return self._settings.name or Path(str(self._settings.directory)).resolve().name

    @property
    def version(self) -> str:
        """The run's id, empty before it is open."""
        return "" if self.runs.current is None else self.runs.current.run.run_id

    @property
    def save_dir(self) -> str:
        return str(self._settings.directory)

    @property
    def experiment(self) -> Run:
        """The run, which is opened when it is first used. Errors: those of Run."""
        return cast(Run, _Experiment(self))

    def opened(self) -> OpenRun:
        """Return the run that a log or an evaluation belongs to."""
        return self.runs.current or self.runs.begin_other(self.begun())

    def begun(self, trainer: Any = None, module: Any = None) -> Begun:
        """Return the description of a training that begins."""
        if trainer is None or module is None:  # before any: the rank is the environment's
            return Begun(self._config, rank_zero_only.rank)
        return Begun(
            {**model_config(module), **self._config},
            trainer.global_rank,
            {**UNKNOWN_MODEL, **model_fields(module)},
            fields={**adapter_fields(module), "device": str(trainer.strategy.root_device)},
        )

    def log_hyperparams(self, params: Any, *_: object, **__: object) -> None:
        """Keep the module's hyperparameters for the run's configuration."""
        self._config |= vars(params) if isinstance(params, Namespace) else dict(params or {})

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Lightning calls it for each fit and test: have the trainer's callbacks include a LightningRun."""
        self.progress.follow(model.trainer)
        callbacks = model.trainer.callbacks
        if not any(isinstance(one, LightningRun) and one.logger is self for one in callbacks):
            callbacks.append(LightningRun(self))

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record a step, or an evaluation if the names say so; steps are counted from 1, as everywhere.

        Where a module logs a `step` of its own, that is the record's `logged_step`.
        """
        number = self.progress.step(step)
        own = {} if step is None or step in (number - 1, number) else {"logged_step": step}
        record(self.opened().run, number, {**metrics, **own}, **self.step_fields)
        if has_step(metrics):
            self.step_fields = {}

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Record the checkpoint that Lightning has just written."""
        names = ("_last_checkpoint_saved", "last_model_path", "best_model_path")
        path = next((found for name in names if (found := getattr(checkpoint_callback, name, ""))), "")
        if path:
            run = self.opened().run
            run.log_checkpoint(self.progress.step(None), checkpoint_path=named_directory(Path(path)))

    def close(self, error: BaseException | None = None) -> None:
        """End the run; without it that happens when the process exits."""
        self.runs.close(error)


class Progress:
    """How many steps a trainer has done; Lightning's own count of a log is one less, or not, by its place."""

    def __init__(self) -> None:
        self.before: int | None = None
        """Steps before the batch that is in work; None between batches."""
        self.trained = 0
        """Steps of the run; another trainer may only test what one has trained."""
        self._trainer: Any = None

    def follow(self, trainer: Any) -> None:
        """Count the steps of this trainer from now on."""
        self._trainer, self.before = trainer, None

    def step(self, logged: int | None) -> int:
        """Return the step that a log belongs to: the one in work, or else the last one."""
        if self._trainer is None:
            return 0 if logged is None else logged + 1
        done = int(self._trainer.global_step)
        if not done:
            done = self.trained
        return done + 1 if self.before == done else done

    def __getstate__(self) -> dict[str, object]:
        # for processes that a strategy spawns, which must not get a copy of the trainer
        return {"before": None, "trained": 0, "_trainer": None}


class _Experiment:
    """A logger's run, opened when it is first used: Lightning asks for it before it knows what it will do."""

    def __init__(self, logger: LightningLogger) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger.opened().run, name)


class LightningRun(Callback):  # type: ignore[misc] # the same
    """Adds to a LightningLogger's run what the module does not log: the model, the pace, the end."""

    def __init__(self, logger: LightningLogger) -> None:
        self.logger = logger
        self._throughput: Throughput | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the run and write its start record. Errors: those of Run, before the first step."""
        self._throughput = None
        if not self._is_on(trainer):  # as where a learning rate is sought
            return
        self.logger.progress.follow(trainer)
        begun = self.logger.begun(trainer, pl_module)
        begun = Begun(begun.config, begun.rank, begun.model, _training(trainer), begun.fields)
        self.logger.runs.begin_training(begun, _resumed(trainer) if trainer.global_step else None)
        self.logger.progress.trained = trainer.global_step
        self._throughput = Throughput(
            trainer.strategy.root_device, dtype=_dtype(trainer), num_devices=trainer.world_size
        )
        self._of_token = flops_of_module(pl_module)
        self._steps = trainer.global_step

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._record_measured()
        self._begin_evaluation(trainer, pl_module)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin_evaluation(trainer, pl_module)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Measure the gradient norm, before clipping, of a step that is logged; no device is waited for."""
        if self._throughput is not None and _is_logged(trainer, trainer.global_step + 1):
            self.logger.step_fields["grad_norm"] = gradient_norm(pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._record_measured()
        self.logger.progress.before = trainer.global_step

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.logger.progress.before = None
        if (throughput := self._throughput) is None:
            return
        tokens = tokens_in(batch) * trainer.world_size
        throughput.add(tokens, self._flops(pl_module, trainer.world_size, tokens))
        samples = samples_in(batch) * trainer.world_size
        if trainer.global_step == self._steps:  # a part of a step, whose gradients are accumulated
            throughput.add_samples(samples)
            return
        self._steps = self.logger.progress.trained = trainer.global_step
        throughput.step(samples)
        if _is_logged(trainer, trainer.global_step):
            self.logger.step_fields |= throughput.read()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._throughput is not None:  # it is no training step
            self._throughput.restart()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._record_measured()
        if self._throughput is not None:
            run = self.logger.experiment
            run.log_epoch(trainer.current_epoch + 1, global_step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._record_measured()
        if self._throughput is not None and self.logger.runs.current is not None:
            self.logger.runs.current.end_training()
        self._throughput = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training ends by an error, whether or not the program goes on."""
        self._throughput = None
        if (found := self.logger.runs.current) is not None and found.is_training and self._is_on(trainer):
            found.fail(exception)

    def _record_measured(self) -> None:
        """Write the step record of a module that has logged nothing at a step that is logged."""
        fields = self.logger.step_fields
        # no log of the module has taken these: it logs nothing itself
        if self._throughput is not None and "sec_per_step" in fields:
            self.logger.step_fields = {}
            self.logger.opened().run.log_step(self._steps, **fields)

    def _flops(self, module: Any, world_size: int, tokens: int) -> float | None:
        """Return a batch's FLOPs on all processes: as the module says, or by its tokens; None if unknown."""
        given = getattr(module, "flops_per_batch", None)  # which Lightning's ThroughputMonitor reads too
        if isinstance(given, int | float):
            return float(given * world_size)
        return float(self._of_token * tokens) if tokens else None

    def _begin_evaluation(self, trainer: Any, pl_module: Any) -> None:
        """Open the run of an evaluation without a training, so that all of it is watched."""
        if trainer.sanity_checking or not self._is_on(trainer):
            return
        if self.logger.runs.current is None:
            self.logger.runs.begin_other(self.logger.begun(trainer, pl_module))
        if self._throughput is None:
            self.logger.progress.follow(trainer)

    def _is_on(self, trainer: Any) -> bool:
        return any(logger is self.logger for logger in trainer.loggers)


def _resumed(trainer: Any) -> Resumed:
    """Return the checkpoint that the trainer was given, and its step."""
    step, path = trainer.global_step, trainer.ckpt_path
    where = None if path is None else named_directory(Path(str(path)))
    is_it = functools.partial(_is_checkpoint, step, None if where is None else str(where))
    return Resumed(step, None if where is None else where.name, is_it)


def _is_checkpoint(step: int, path: str | None, record: Mapping[str, Any]) -> bool:
    return record.get("global_step") == step and path in (None, record.get("checkpoint_path"))


def _is_logged(trainer: Any, step: int) -> bool:
    every = trainer.log_every_n_steps
    return bool(every) and step % every == 0


def _dtype(trainer: Any) -> str:
    """Return the type of matrix products, by the trainer's precision: `16-mixed`, `bf16-true` …"""
    precision = str(trainer.precision)
    return "bfloat16" if precision.startswith("bf16") else "float16" if "16" in precision else "float32"


def _training(trainer: Any) -> dict[str, object]:
    """Return how it is trained, as far as a trainer knows."""
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
