"""Callbacks of Hugging Face's Trainer (transformers 5, and what trl builds on it).

The Trainer hands the loss to `on_log` only, has gradients until `on_optimizer_step`, and by its own filter
(`logging_nan_inf_filter`) shows a NaN as the mean of the steps before: RunCallback turns that filter off.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from monitoring.callbacks.described import adapter_fields, gradient_norm, model_config, model_fields
from monitoring.callbacks.logged import record, record_evaluation
from monitoring.callbacks.open_run import Begun, CallbackRuns, OpenRun, Resumed, RunSettings, directory_of
from monitoring.callbacks.throughput import Throughput, flops_of_token
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
from monitoring.telemetry.callback import TelemetryCallback

# Names by which the Trainer's last log, of the whole training, is known; other logs may have some of them.
SUMMARY = frozenset({"train_runtime", "train_loss", "total_flos"})
# Endings of the names of an evaluation's time and pace, after its prefix.
RUNTIME, RATE = "_runtime", "_samples_per_second"
# The Trainer's name of the loss of the steps since its last log, which no other log has.
LOSS = "loss"

# Relative error of FLOPs that ranks add up in float32.
ROUNDING = 1e-6


class RunCallback(TrainerCallback):  # type: ignore[misc] # transformers is not typed
    """Records what a Trainer does in run directories; every process of it has a journal there.

    A training is a new run (`results/first`, then `results/first-2`), unless it resumes from a checkpoint:
    then it is the next attempt of the run that wrote it. An evaluation before, after or without a training
    is recorded too. The run ends with the process, with `close`, or when the next one begins.
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
        self._runs = CallbackRuns(RunSettings(where, name, project, trackers or {}, gpu_monitor, agent))
        self._trained: _Trained | None = None
        self._in_train = False
        self._recorded: Mapping[str, Any] = {}
        self._filtered: bool | None = None
        _have_trainers_tell()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: object) -> None:
        """Open the run and write its start record. Errors: those of Run, before the first step."""
        self._name(args)
        begun = Begun(
            {**args.to_sanitized_dict(), **model_config(model)},
            args.process_index,
            model_fields(model),
            _training(args, state),
            {**adapter_fields(model), **_device(args)},
        )
        step = state.global_step
        resumed = Resumed(step, f"checkpoint-{step}", functools.partial(_is_checkpoint, step))
        # with auto_find_batch_size the training begins again, with a smaller batch, in one call of `train`
        self._runs.begin_training(begun, resumed if step else None, again=self._in_train)
        self._in_train = True
        self._trained = _Trained(args, state, model)
        if self._filtered is None:
            self._filtered, args.logging_nan_inf_filter = args.logging_nan_inf_filter, False
        self._recorded = {}
        self._norm: object = None

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: object
    ) -> None:
        """Measure the gradient norm of a step that is logged, where the Trainer, which clips, does not."""
        self._norm = None
        if model is not None and not args.max_grad_norm and _is_logged(args, state, state.global_step + 1):
            self._norm = gradient_norm(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._trained is not None:
            self._trained.step()

    def on_prediction_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: object) -> None:
        """Open the run of an evaluation without a training, so that all of it is watched."""
        self._opened(args, model)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        model: Any = None,
        **_: object,
    ) -> None:
        """Record a step or an evaluation; of the last log, of the whole training, the end record has all."""
        if not logs:
            return
        found = self._opened(args, model)
        if logs.keys() >= SUMMARY:
            found.add_to_end(**{str(name): value for name, value in logs.items() if name != "epoch"})
        elif (prefix := _prefix(logs)) is not None:
            record_evaluation(found.run, state.global_step, logs, prefix)
            self._recorded = dict(logs)
        elif LOSS in logs and self._trained is not None:
            record(found.run, state.global_step, logs, grad_norm=self._norm, **self._trained.read(state))
        else:
            record(found.run, state.global_step, logs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._record_rest(args, state, "eval", **given)

    def on_predict(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._record_rest(args, state, "test", **given)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._runs.current is not None:
            self._runs.current.run.log_epoch(math.ceil(state.epoch), global_step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Record a checkpoint that is complete on disk."""
        if self._runs.current is not None and state.is_world_process_zero:
            path = _checkpoint(args, state)
            self._runs.current.run.log_checkpoint(state.global_step, checkpoint_path=path)
        self._restart_pace()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self._leave(args)
        if (found := self._runs.current) is not None:
            found.end_training()
            if state.best_metric is not None:
                found.add_to_end(best_metric=state.best_metric, best_step=state.best_global_step)

    def on_exception(self, args: Any, error: BaseException) -> None:
        """The training ends by an error, whether or not the program goes on."""
        self._leave(args)
        if self._runs.current is not None and self._runs.current.is_training:
            self._runs.current.fail(error)

    def close(self) -> None:
        """End the run; without it that happens when the process exits."""
        self._runs.close()

    def _opened(self, args: Any, model: Any) -> OpenRun:
        """Return the run that a log or an evaluation belongs to."""
        if self._runs.current is None:
            self._name(args)
            config = args.to_sanitized_dict()
            if model is None:
                return self._runs.begin_other(Begun(config, args.process_index))
            return self._runs.begin_other(
                Begun(
                    {**config, **model_config(model)},
                    args.process_index,
                    model_fields(model),
                    fields={**adapter_fields(model), **_device(args)},
                )
            )
        return self._runs.current

    def _name(self, args: Any) -> None:
        """Give the runs the Trainer's names where the user gave none."""
        settings = self._runs.settings
        if settings.directory is None:
            settings.directory = Path(args.output_dir)
        settings.name = settings.name or getattr(args, "run_name", None)

    def _record_rest(
        self, args: Any, state: Any, usual: str, *, metrics: Any = None, model: Any = None, **_: object
    ) -> None:
        """Record what was measured and not logged: of an evaluation nothing, of a prediction all."""
        metrics, logged = metrics or {}, self._recorded
        rest = {
            name: value
            for name, value in metrics.items()
            if name not in logged or not (logged[name] is value or logged[name] == value)
        }
        if rest:
            record_evaluation(
                self._opened(args, model).run, state.global_step, rest, _prefix(metrics) or usual
            )
        self._recorded = {}
        self._restart_pace()

    def _restart_pace(self) -> None:
        """Restart the pace: what was done meanwhile is no training step."""
        if self._trained is not None:
            self._trained.throughput.restart()

    def _leave(self, args: Any) -> None:
        self._in_train = False
        if self._filtered is not None:
            args.logging_nan_inf_filter, self._filtered = self._filtered, None


class _Trained:
    """The work of a training, as far as the Trainer's state and arguments tell."""

    def __init__(self, args: Any, state: Any, model: Any) -> None:
        dtype = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
        self.throughput = Throughput(args.device, dtype=dtype, num_devices=args.world_size)
        self._samples = _batch_size(args)
        self._flops_seen, self._tokens_seen = state.total_flos, state.num_input_tokens_seen
        self._counts_tokens = getattr(args, "include_num_input_tokens_seen", "no") not in ("no", False)
        # The factor of Trainer.floating_point_ops; of parameters that ranks share it sees a part.
        count = getattr(model, "num_parameters", None)
        is_text = getattr(model, "main_input_name", None) == "input_ids"
        is_shared = bool(getattr(args, "fsdp", None) or getattr(args, "deepspeed", None))
        self._parameters = count(exclude_embeddings=True) if callable(count) and is_text else 0
        trained = count(exclude_embeddings=True, only_trainable=True) if callable(count) and is_text else 0
        self._of_token = None if is_shared else flops_of_token(self._parameters, trained)

    def step(self) -> None:
        self.throughput.step(self._samples)

    def read(self, state: Any) -> dict[str, Any]:
        """Return fields of a step record; the Trainer has just counted what all ranks have computed."""
        flops, self._flops_seen = state.total_flos - self._flops_seen, state.total_flos
        seen, self._tokens_seen = state.num_input_tokens_seen - self._tokens_seen, state.num_input_tokens_seen
        computed = round(flops / (6 * self._parameters)) if self._parameters else 0
        if abs(6 * self._parameters * computed - flops) > ROUNDING * flops:
            computed = 0  # a Trainer that counts otherwise
        of_token = self._of_token if computed else None
        tokens = seen if self._counts_tokens else computed
        self.throughput.add(int(tokens), None if of_token is None else of_token * computed)
        return dict(self.throughput.read())


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
        """The callback that it calls, from the first epoch of the training on."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.telemetry = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Begin to measure, in the directory of the training's run, which a RunCallback has opened by now."""
        if self.telemetry is None:
            directory = directory_of(Path(self._directory or args.output_dir))
            self.telemetry = TelemetryCallback(directory, **self._options)
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
        """Start the monitor, if it is not running."""
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


def _device(args: Any) -> dict[str, str]:
    """Return the GPU that the process computes on; empty for several (torch.nn.DataParallel)."""
    return {"device": str(args.device)} if args.n_gpu <= 1 else {}


def _training(args: Any, state: Any) -> dict[str, object]:
    """Return how it is trained, by the Trainer's arguments."""
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
    """Return samples per optimizer step, of all processes."""
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


def _is_logged(args: Any, state: Any, step: int) -> bool:
    """Whether the Trainer logs after a step, by steps."""
    strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
    every = state.logging_steps
    return strategy == "steps" and bool((step == 1 and args.logging_first_step) or step % every == 0)


def _checkpoint(args: Any, state: Any) -> Path:
    """Return the checkpoint just saved; that of a hyperparameter search is in a folder of the trial."""
    folder, name = Path(args.output_dir), f"checkpoint-{state.global_step}"
    if state.is_hyper_param_search:
        found = [path for path in folder.glob(f"*/{name}") if path.is_dir()]
        return max(found, key=lambda path: path.stat().st_mtime, default=folder / name)
    return folder / name


def _is_checkpoint(step: int, record: Mapping[str, Any]) -> bool:
    return record.get("global_step") == step and str(record.get("checkpoint_path")).endswith(
        f"checkpoint-{step}"
    )


def _prefix(logs: Mapping[str, Any]) -> str | None:
    """Return the prefix of an evaluation's metrics, by the time and pace among them; None for other logs."""
    names = {str(name) for name in logs}
    for name in names:
        prefix = name.removesuffix(RUNTIME)
        if prefix not in (name, "train") and prefix + RATE in names:
            return prefix
    return None


def _have_trainers_tell() -> None:
    """Have `Trainer.train` tell its RunCallbacks the exception that ends it: it calls them no more then."""
    if hasattr(Trainer.train, "tells"):
        return
    train = Trainer.train

    @functools.wraps(train)
    def telling(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return train(self, *given, **named)
        except BaseException as error:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, RunCallback):
                    callback.on_exception(self.args, error)
            raise

    telling.tells = True  # type: ignore[attr-defined] # a function may have any
    Trainer.train = telling
