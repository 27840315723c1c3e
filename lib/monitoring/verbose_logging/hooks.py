"""The hooks that a training calls: those of a Hugging Face TrainerCallback, without Hugging Face."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, cast

from monitoring.host.correlation import own_rank
from monitoring.journal.records import Record
from monitoring.verbose_logging.channel import Channel
from monitoring.verbose_logging.levels import DEFAULT_LEVEL, verbosity
from monitoring.verbose_logging.log_file import FILE_BYTES, LOG_FILE, ErrorLog
from monitoring.verbose_logging.model_and_dataset import dataset_info, model_info
from monitoring.verbose_logging.resources import ResourceReader, system_info, torch_devices

# Seconds that the end of a training waits for its log to be complete.
LONGEST_WAIT = 10.0

# The trainer's arguments that are in the log; none of them is a secret.
ARGUMENTS = (
    *("num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size"),
    *("gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay"),
    *("optim", "max_grad_norm", "logging_steps", "save_steps", "eval_strategy", "seed", "bf16", "fp16"),
    *("gradient_checkpointing", "output_dir", "world_size"),
)

HookT = TypeVar("HookT", bound=Callable[..., None])


def _guarded(hook: HookT) -> HookT:
    """Return the hook, which then raises nothing: what goes wrong is in the log of errors."""

    @functools.wraps(hook)
    def guarded(self: VerboseHooks, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a training goes on whatever becomes of its log
            self._errors.add(hook.__name__, error)

    return cast(HookT, guarded)


class VerboseHooks:
    """Hands what a training does to the process that writes its verbose log; no hook raises or waits.

    But for the end of the training, which waits until the log is complete, at most LONGEST_WAIT seconds.
    """

    def __init__(
        self,
        verbosity_level: str = DEFAULT_LEVEL,
        log_file: str | os.PathLike[str] = LOG_FILE,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """ValueError for an unknown level. `training_logs.jsonl` and `verbose_logging_errors.log` are written
        beside `log_file`; each is moved aside and compressed from `file_bytes` on.
        """
        level = verbosity(verbosity_level)
        self.verbosity_level = level.name
        self.log_file = log_file
        path = self._path = Path(log_file).absolute()
        self._level = level
        self._errors = ErrorLog(path.parent)
        arguments = (level.name, str(path), own_rank(), os.getpid(), file_bytes)
        self._channel = Channel([str(argument) for argument in arguments], self._errors)
        self._reader: ResourceReader | None = None
        self._began = math.nan  # null in the log
        self._in_evaluation = False
        # what a step asks, without an attribute of an attribute
        self._step_every = level.step_every
        self._has_step_begin = "step_begin" in level.types
        self._append = self._channel.events.append
        self._send = self._channel.send
        if not level.step_every:
            vars(self).update(on_step_begin=_nothing, on_step_end=_nothing)

    # ------------------------------------------------------------- each step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._began = perf_counter()
        if self._has_step_begin:
            self._add_step("step_begin", self._began, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:  # as _add_step, whose call would cost each step more
            step = state.global_step
            if step % self._step_every:
                return
            now = perf_counter()
            self._append(("step_end", now, step, state.epoch, now - self._began))
            if now >= self._channel.flush_at:
                self._channel.flush()
        except Exception as error:  # noqa: BLE001 - as _guarded, without its call
            self._errors.add("on_step_end", error)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        try:
            now = perf_counter()
            # a copy, because other callbacks take values out of it
            self._append(("log", now, state.global_step, state.epoch, {**logs} if logs else {}))
            if now >= self._channel.flush_at:
                self._channel.flush()
        except Exception as error:  # noqa: BLE001 - as _guarded, without its call
            self._errors.add("on_log", error)

    @_guarded
    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._has_step_begin:
            self._add_step("batch_end", perf_counter(), state)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    def _add_step(self, kind: str, now: float, state: Any) -> None:
        """An event of a step, at a level at which each has records."""
        try:
            self._append((kind, now, state.global_step, state.epoch))
            if now >= self._channel.flush_at:
                self._channel.flush()
        except Exception as error:  # noqa: BLE001 - as _guarded, without its call
            self._errors.add(kind, error)

    # ------------------------------------------------------------- a few times

    @_guarded
    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._begin()
        facts = {"arguments": _arguments(args), "model": self._get_model_info(model)}
        self._send("initialized", facts)

    @_guarded
    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        self._begin()
        num_steps, batch = _number(state, "max_steps"), _number(args, "train_batch_size")
        parts = _number(args, "gradient_accumulation_steps") or 1
        samples = batch * parts * (_number(args, "world_size") or 1) if batch else None
        facts: Record = {
            "num_epochs": _number(state, "num_train_epochs"),
            "batch": {
                "batch_size": _number(args, "per_device_train_batch_size"),
                "gradient_accumulation_steps": parts,
                "samples_per_step": samples,
            },
        }
        dataset = getattr(train_dataloader, "dataset", None)
        if dataset is not None:
            facts["dataset"] = dataset_info(dataset)
        step = _number(state, "global_step") or 0
        self._send("train_begin", step, num_steps, samples, facts)

    @_guarded
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._send("epoch_begin", state.global_step, state.epoch or 0.0)

    @_guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._send("epoch_end", state.global_step, state.epoch or 0.0)

    @_guarded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = getattr(args, "output_dir", None)
        path = None if folder is None else str(Path(folder) / f"checkpoint-{state.global_step}")
        self._send("saved", state.global_step, {"checkpoint_path": path})

    @_guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Send each step of an evaluation; at most levels only the first, with which the evaluation began."""
        if not self._in_evaluation or self._has_step_begin:
            self._in_evaluation = True
            self._send("prediction_step", state.global_step)

    @_guarded
    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._in_evaluation = False
        self._send("evaluated", state.global_step, metrics if metrics is not None else {})

    @_guarded
    def on_predict(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self.on_evaluate(args, state, control, metrics)

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    @_guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._send("train_end", state.global_step)
        self.flush()

    # ------------------------------------------------------------- at any time

    def flush(self) -> None:
        """Return when the log is complete on disk, or after LONGEST_WAIT seconds."""
        if self._channel.is_open and not self._channel.sync(LONGEST_WAIT):
            self._errors.add(f"the log is not complete after {LONGEST_WAIT:g} s")

    def close(self) -> None:
        """End the process that writes the log, once that is complete; a later event starts another."""
        self._channel.close(LONGEST_WAIT)

    @_guarded
    def _write_log(self, log_entry: Mapping[str, Any]) -> None:
        """Write one entry of the caller's, as it is, and return when it is in the file."""
        self._begin()
        self._send("entry", log_entry)
        self.flush()

    def _get_comprehensive_system_info(self) -> Record:
        """Return what this machine has: processor, memory, disk, network, GPUs, versions."""
        return system_info(self._path.parent)

    def _get_current_resource_usage(self) -> Record:
        """Return how the machine is used now; GPUs are those that torch has begun to use in this process."""
        if self._reader is None:
            complete = self._level.has_complete_state
            self._reader = ResourceReader(os.getpid(), self._path.parent, complete=complete)
        try:
            devices = torch_devices()
        except Exception as error:  # noqa: BLE001 - the driver is called here; the rest is still known
            self._errors.add("GPUs cannot be read", error)
            devices = []
        return self._reader.read(devices)

    def _get_model_info(self, model: Any) -> Record:
        """Return class, parameters, size in MB and configuration of a model; {} for None."""
        return {} if model is None else model_info(model)

    def _begin(self) -> None:
        """Write the first entry of a log."""
        if not self._channel.is_open:
            self._send("system")


def _nothing(*args: object, **kwargs: object) -> None:
    """Do nothing, in place of a hook that a level does not need."""


def _number(holder: Any, name: str) -> Any:
    value = getattr(holder, name, None)
    return value if isinstance(value, int | float) else None


def _arguments(args: Any) -> Record:
    """Return those of ARGUMENTS that the trainer has, in their JSON form."""
    found = {name: getattr(args, name) for name in ARGUMENTS if hasattr(args, name)}
    return {
        name: getattr(value, "value", value) if not isinstance(value, os.PathLike) else str(value)
        for name, value in found.items()
    }
