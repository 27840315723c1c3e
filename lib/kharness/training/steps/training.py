"""The loop of a training: batches, updates, evaluations and checkpoints in their order."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from kharness.config.output import say
from kharness.config.places import asked_path
from kharness.runs.exit_codes import EXIT_STOPPED, STOPPED
from kharness.runs.files import PREDICTIONS, WEIGHTS
from kharness.training.checkpoint import Checkpoints, training_state
from kharness.training.distributed.model import ShardedModel, distributed_model, unsynchronized
from kharness.training.due import Every
from kharness.training.fingerprint import state_sha256
from kharness.training.guard import StopOnSignal
from kharness.training.resume import HASHED, log_checkpoint
from kharness.training.setup import DataT, Setup
from kharness.training.steps.agreement import BETWEEN_ROUNDS, StepAgreement
from kharness.training.steps.alerted import AlertedSteps
from kharness.training.steps.control import StepControl
from kharness.training.steps.epoch_bar import NoBar, epoch_block, open_bar
from kharness.training.steps.own_metrics import OwnMetrics, Value
from kharness.training.steps.telemetry import StepTelemetry, open_telemetry
from kharness.training.steps.update import GuardedUpdate, Updated
from kharness.training.steps.waiting import WaitCheck
from monitoring import Record, Run
from monitoring.follower import upload_commands
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import JOURNAL, PROFILER
from monitoring.telemetry.pace import open_pace
from monitoring.telemetry.phases import Phases, open_phases
from monitoring.telemetry.profiler import TorchProfiler, configured_profiler

BatchT = TypeVar("BatchT", covariant=True)


class Split(Protocol[BatchT]):
    """A part of the data."""

    def batch(self, indices: Tensor, /) -> BatchT:
        """Return the model's inputs and targets for the given indices."""


class Training(Generic[DataT]):
    """A training under way. Each step of `steps` calls `update` once, and `evaluated` where that is due."""

    def __init__(
        self,
        setup: Setup[DataT],
        run: Run,
        checkpoints: Checkpoints,
        stop: StopOnSignal,
        *,
        step: int,
        phases: Phases | None = None,
        changes: Iterable[Record] = (),
        timed: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`changes` are control_change records whose changes are made again, after the same steps.

        `timed` is what a checkpoint has of the telemetry of each rank.
        """
        self.options, self.data = setup.options, setup.data
        self.step = self._first_step = step
        """Updates done, over all attempts."""
        self.num_steps = setup.schedule.num_steps
        self._setup, self._run, self._checkpoints, self._stop = setup, run, checkpoints, stop
        self.world = setup.world
        """The processes of the training."""
        self._evaluations = Every(epochs=1, steps=self.options.EVAL_INTERVAL)
        self._saves = Every.checkpoints(self.options.values)
        self._pace, self._phases = open_pace(setup.device.torch), phases or open_phases(setup.device.torch)
        self._telemetry = (
            StepTelemetry(setup)  # of a check of the model, which has looks of its own into it
            if phases
            else open_telemetry(setup, run.directory, timed=timed, counted=self._restart_clocks)
        )
        self.model = distributed_model(
            setup.model,
            setup.world,
            setup.device.torch,
            self._phases,
            apart=setup.trained_apart(),
            find_unused=bool(self.options.DDP_FIND_UNUSED),
        )
        """The model that steps and evaluations call; in several processes it averages gradients."""
        self.optimizer = setup.optimizer
        """The one of OPTIMIZER; what you set in its `param_groups` in a step holds from its update on."""
        self.module = setup.model
        """The model itself, for forward passes whose gradients `gradients_of` or `update_apart` takes."""
        self.models = {"": self.model if self._is_shared else setup.model}
        """Models to evaluate, by the prefix of their metrics: the model, and as `ema_` its moving average."""
        if setup.average is not None:
            self.models["ema_"] = setup.average.model
        self._agreement = StepAgreement(
            setup.world,
            stop,
            is_out_of_time=self._has_used_up_its_time,
            between_rounds=BETWEEN_ROUNDS if setup.device.torch.type == "cuda" else 0.0,
        )
        self._update = GuardedUpdate(setup, self._agreement, self._phases, run.log_step)
        self._own, self._share = OwnMetrics(setup.world, setup.device.torch), 1.0
        self._profiler = _profiler(setup, run)
        self._control = StepControl(
            run,
            setup.progress.control,
            self._agreement,
            stop,
            log_every=self.options.LOG_EVERY,
            is_main=self.world.is_main,
            profile=self._profiler.request,
            changes=changes,
        )
        self._alerted = AlertedSteps(run, setup.batches, self.world)
        self.bar = _bar(setup, run, step=step)
        """The progress bar, which a terminal shows within its `shown()`."""
        self._waits = WaitCheck(setup.device.torch, is_on=bool(self.options.CUDA_SYNC_CHECK))
        self._rate, self._batch = 0.0, torch.empty(0, dtype=torch.int64)
        self._validation: dict[str, float] = {}
        self._outcome: dict[str, Any] = {}
        self._samples: dict[str, Any] = {}
        setup.progress.start_clocks()

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """Within it the profiler keeps what it has, however the training ends."""
        try:
            yield
        except torch.OutOfMemoryError:
            self._profiler.out_of_memory()
            raise
        finally:
            self._waits.end()
            self._profiler.close()

    def steps(self) -> Iterator[Tensor]:
        """The indices of each step that is left, epoch after epoch; exits with 75 when a stop was requested.

        Of several ranks each gets its part of the batch.

        Where the order of calls matters, in a step and after it:

        - The loss is checked before the update (`GuardedUpdate`): weights that are NaN once stay so.
        - What a GPU has not delivered yet is checked before an evaluation and before a checkpoint
          (`GuardedUpdate.wait`), so that none is made of spoiled weights.
        - An evaluation is recorded before the end of its epoch, and both before the checkpoint: who resumes
          from that does not repeat them.
        - An average that an optimizer keeps of the weights is in the model from an evaluation or checkpoint
          to the next step, which puts the trained weights back.
        - A request to stop is looked at after the checkpoint, so that no step is lost or done twice.
        """
        setup, batches = self._setup, iter(self._setup.batches)
        self._pace.restart()
        while not self._is_over:
            self._profiler.begin_step(self.step + 1)
            self._batch, before = next(batches), self.step
            indices, factor = self.world.part(self._batch)
            self._rate = setup.schedule(self.step) * self._control.lr_factor
            self._control.look(self.step + 1)
            self._alerted.look(self.step)
            self._waits.begin()
            self._update.begin(self.step, rate=self._rate, factor=factor)
            self._own.begin()
            self._phases.begin()
            self._telemetry.begin_step(self.step + 1)
            yield indices
            if self.step != before + 1:
                raise RuntimeError("each step of a training calls update() once")
            self._end_step()
            if self._agreement.stop_is_requested or self._control.stops:
                break
        self._end_steps()
        if not self._is_over:
            self._run.finish(INTERRUPTED, cause=STOPPED, reason=self._stop.requested, **self._outcome)
            print(f"stopped by {self._stop.requested} after step {self.step}; everything is saved")
            self._print_uploads()
            sys.exit(EXIT_STOPPED)

    def batch(self, split: Split[BatchT], indices: Tensor) -> BatchT:
        """The samples of a step, or of a part of it; the time that it takes is the step's `data_seconds`."""
        found = split.batch(indices)
        self._phases.end("data_seconds")
        return found

    def micro_batches(self, indices: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The parts of a step by MICRO_BATCH_SIZE, each with its share of the step's samples.

        Processes that share the model take equally many: one of fewer samples repeats one, with a share of 0.
        """
        size = self.options.MICRO_BATCH_SIZE or len(self._batch)
        parts = [(part, len(part) / len(indices)) for part in indices.split(size)]
        if self._is_shared:
            most = math.ceil(math.ceil(len(self._batch) / self.world.size) / size)
            parts += [(indices[:1], 0.0)] * (most - len(parts))
        *others, last = parts
        with unsynchronized(self.model) if others else nullcontext():
            for part, self._share in others:
                yield part, self._share
                self._telemetry.end_part()
        self._share = last[1]
        yield last
        self._share = 1.0

    def record(self, **metrics: Value) -> None:
        """Add metrics of your own to the record of this step: numbers, or tensors of one element.

        They are means: over micro-batches by their share (within `micro_batches`), and over all processes,
        which record the same names. TrainingError for a name that each step record has.
        """
        self._own.add(metrics, weight=self._share * self._update.factor)

    def accumulate(
        self,
        loss: Tensor,
        *,
        share: float = 1.0,
        report: Tensor | None = None,
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the gradients of a micro-batch, by its mean loss and its share of the step's samples.

        for part, share in training.micro_batches(indices):
            loss = …
            training.accumulate(loss, share=share)
        training.update()

        `report` is the part of the loss that validation measures too, such as the cross-entropy without an
        auxiliary loss: it becomes `train_loss`, while the gradients are those of `loss`. `gradients` take
        the place of the loss's own: what you made of those that `gradients_of` gave.
        """
        self._update.add(loss, share=share, report=report, gradients=gradients)

    def gradients_of(self, *losses: Tensor) -> list[dict[str, Tensor]]:
        """The gradients of each loss alone, by the parameters' names, averaged over all processes.

        The losses are those of `training.module`: in several processes `training.model` would wait for the
        one backward pass that it averages. TrainingError with PARALLEL=fsdp.
        """
        named = {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}
        found = self._update.gradients_of(losses, list(named.values()))
        return [dict(zip(named, gradients, strict=True)) for gradients in found]

    def update_apart(self, name: str, loss: Tensor, *, clip_norm: float | None = None) -> None:
        """Update what an optimizer apart (OwnOptimizers) trains, by a loss of its own; as often as you like.

        The loss is of `training.module`. Its gradients are averaged over all processes; NonFiniteError as
        `update` has it.
        """
        self._update.apply_apart(self.step + 1, name, loss, clip_norm=clip_norm)

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the step's mean loss by name, between the last `accumulate` and `update`.

        Of several processes they are the mean already; with PARALLEL=fsdp each has its part (DTensor). Change
        them in place: the check that they are finite, their recorded norm, `clip_norm` and the optimizer come
        after that. A parameter that the loss does not depend on has none.
        """
        named = self._setup.model.named_parameters()
        return {name: weight.grad for name, weight in named if weight.grad is not None}

    def update(
        self, loss: Tensor | None = None, *, clip_norm: float | None = None, report: Tensor | None = None
    ) -> None:
        """Update the weights by the gradients of the step's mean loss, or of what was accumulated.

        `clip_norm` scales gradients of a greater total norm down to it; the record has the norm before.
        `report` is what `accumulate` has it for. NonFiniteError before the update where the loss or the norm
        is not finite, on a GPU a few steps later.
        """
        if loss is not None:
            self.accumulate(loss, report=report)
        updated = self._update.apply(self.step + 1, self._batch, clip_norm=clip_norm)
        self.step += 1
        self._telemetry.end_step()
        self._control.apply(self.step)
        self._pace.step(len(self._batch))
        if not updated.is_skipped:
            self._setup.progress.add(updated.loss, len(self._batch))
            if self._has_record:
                self._log_step(updated)
        self.bar.step(self.step)
        self._waits.end()
        if self.evaluation_is_due:
            self._update.wait()  # its metrics would be those of weights that are NaN already
            self._setup.weights.to_evaluate()
            # Each rank has its own statistics of batch norm until a step begins; rank 0's are evaluated.
            self.world.overwrite([b for model in self.models.values() for b in model.buffers()])

    def turns(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
        """This process's chunks of an evaluation, each with how many of its samples count.

        Processes that share the model (PARALLEL=fsdp) call it equally often: one for which no chunk is left
        repeats another's, of which none counts.
        """
        if self._is_shared:
            return self.world.rounds(chunks)
        return ((chunk, len(chunk)) for chunk in self.world.turns(chunks))

    @property
    def evaluation_is_due(self) -> bool:
        """Whether an evaluation follows this step: by EVAL_INTERVAL, and after the last step.

        Before the first step, in a run that does not resume: whether EVAL_FIRST wants the first weights
        evaluated. A checkpoint is written after the evaluation of its step: who resumes from it has that.
        """
        if self.step == self._first_step:
            return self.step == 0 and bool(self.options.EVAL_FIRST)
        if self._control.evaluates:
            return True
        return self._is_over or self._evaluations.is_due(self.step, epoch=self._ended_epoch)

    def evaluated(self, split: str, **metrics: float) -> None:
        """Record an evaluation; the `loss` on the split `val` decides which checkpoint is the best.

        That of the first weights, which nobody has trained, decides nothing.
        """
        metrics = self.world.of_main(metrics)  # for what follows, all ranks have to agree
        named = {f"{split}_{name}": value for name, value in metrics.items()}
        self._log_eval(split, named)
        if self.step == 0:
            say(f"step 0/{self.num_steps}  {_shown(named)}")
        elif split == "val":
            self._validation = named

    def note_samples(self, texts: Sequence[str]) -> None:
        """Have the end record hold what the trained model wrote, and print it."""
        if texts:
            self._samples = {"samples": list(texts)}
            print("\n".join(texts))

    def inferred(
        self,
        measured: Mapping[str, float],
        predictions: Sequence[Mapping[str, object]],
        picture: bytes | None = None,
    ) -> None:
        """Record what the trained model does, if it was requested; `picture` is a PNG of predictions."""
        if not self.world.is_main:
            return
        shown: dict[str, object] = {"predictions": predictions} if predictions else {}
        if picture is not None:
            write_atomically(self._run.directory / PREDICTIONS, picture)
            shown["pictures"] = {"predictions": PREDICTIONS}
        if measured or shown:
            self._run.log_eval(self.step, split="inference", **measured, **shown)
            print(_shown(measured))

    def finish(self, **metrics: float) -> int:
        """Record the end, with the metrics on the test set, at which nothing has looked before; returns 0."""
        if not self._outcome:  # the steps were left before their end
            self._end_steps()
        named: dict[str, Any] = {f"test_{name}": value for name, value in metrics.items()}
        if named:
            self._log_eval("test", named)
        self._run.finish(**named, **self._outcome, **self._samples)
        if named:
            print(_shown(named))
        self._print_uploads()
        return 0

    def _print_uploads(self) -> None:
        if self.world.is_main:
            for tracker, command in upload_commands(self._run.directory).items():
                say(f"{tracker} has this run offline; it is uploaded by {command}")

    def _log_eval(self, split: str, named: Mapping[str, float]) -> None:
        if self.world.is_main:
            self._run.log_eval(self.step, split=split, **named)

    @property
    def _is_shared(self) -> bool:
        return isinstance(self.model, ShardedModel)

    @property
    def _has_record(self) -> bool:
        """Whether the latest step has a record; FiniteWatch records those that are not finite."""
        if self.step == 1 and self.options.LOGGING_FIRST_STEP:
            return True
        if self._telemetry.wants_record:
            return True
        strategy = self.options.LOGGING_STRATEGY or "steps"
        if strategy == "steps":
            return self._is_over or self._control.records(self.step)
        return strategy == "epoch" and self._ended_epoch is not None

    def _log_step(self, updated: Updated) -> None:
        measured: dict[str, Any] = {"train_loss": updated.train_loss, "lr": self._rate}
        measured |= {"grad_norm": updated.grad_norm, **self._pace.read(), **self._phases.read()}
        measured |= self._update.moved
        measured |= {**self._setup.device.memory(), **self._setup.pruner.measured()}
        measured |= self._telemetry.measured(self.step, measured)
        measured |= self._own.read(measured)
        self._run.log_step(self.step, **measured)

    def _restart_clocks(self) -> None:
        """Begin the step's times again: what was done until now is none of its work."""
        self._pace.restart()
        self._phases.begin()

    def _has_used_up_its_time(self) -> bool:
        seconds = 60 * self.options.MAX_TIME
        return bool(seconds and self._setup.progress.clock.seconds >= seconds)

    @property
    def _is_over(self) -> bool:
        """Whether the latest step was the last: all are done, or MAX_TIME is used up."""
        return self.step == self.num_steps or self._agreement.out_of_time

    @property
    def _ended_epoch(self) -> int | None:
        """The epoch (from 1) that the latest step ended; the last of all steps ends the epoch it is in."""
        batches = self._setup.batches
        if batches.position == 0:
            return batches.epoch
        return batches.epoch + 1 if self._is_over else None

    def _end_step(self) -> None:
        """End the epoch and save, where that is due after an update and its evaluation."""
        epoch, validation, self._validation = self._ended_epoch, self._validation, {}
        if epoch:
            self._end_epoch(epoch, validation)
        elif validation:
            say(f"step {self.step}/{self.num_steps}  {_shown(validation)}")
        if "val_accuracy" in validation:
            self._setup.progress.note_accuracy(validation["val_accuracy"])
        is_best = "val_loss" in validation and self._checkpoints.improves(
            validation["val_loss"], step=self.step
        )
        requested = self._control.saves_for or None
        if self._saves.is_due(self.step, epoch=epoch) or (is_best and self._saves) or requested:
            self._save(best=is_best, reason=requested)
        if epoch or validation or self._checkpoints.last_step == self.step:
            self._pace.restart()  # the time of evaluating and saving belongs to no step

    def _end_epoch(self, epoch: int, validation: dict[str, float]) -> None:
        progress = self._setup.progress
        train_loss = progress.train_loss()
        measured = {"epoch_seconds": progress.epoch_clock.seconds, **self._setup.pruner.measured()}
        if self.world.is_main:
            self._run.log_epoch(epoch, global_step=self.step, train_loss=train_loss, **validation, **measured)
        self.bar.end_epoch(self.step)
        shown = _shown({"loss": train_loss, **validation})
        of = f"/{self.options.NUM_EPOCHS}" if self.options.NUM_EPOCHS else ""
        say(f"epoch {epoch}{of}  step {self.step}  {shown}  {measured['epoch_seconds']:.1f} s")
        if self.world.is_main and self.step == self.num_steps:
            done = self.step / self._setup.batches.steps_per_epoch
            journal = self._run.directory / JOURNAL
            print(epoch_block(journal, loss=train_loss, learning_rate=self._rate, epoch=done), flush=True)
        progress.end_epoch()

    def _end_steps(self) -> None:
        """Save what is not saved yet, and note what the end record has."""
        self._profiler.close()
        self._alerted.look(self.step, at_once=True)
        progress, best = self._setup.progress, self._checkpoints.best
        if self._checkpoints.last_step != self.step:
            self._save(reason=None if self._is_over else self._stop.requested or None)
        if self._is_shared:
            self._checkpoints.save_weights(self._run.directory / WEIGHTS, self._setup.model)
        self._control.end(self.step, ended=COMPLETE if self._is_over else INTERRUPTED)
        self._outcome = {
            "steps_done": self.step,
            "training_seconds": progress.clock.seconds,
            "training_cpu_seconds": progress.cpu_seconds,
            "best_val_loss": best.val_loss if best else None,
            "best_val_accuracy": progress.best_accuracy,
            **self._setup.counted(),
            **self._telemetry.end(),
            **self._setup.pruner.measured(),
        }

    def _save(self, *, best: bool = False, reason: str | None = None) -> None:
        """Write a checkpoint from which a later attempt resumes bit for bit."""
        self._update.wait()
        self._setup.weights.to_evaluate()
        state = training_state(
            self._setup.parts(),
            schedule=self._setup.schedule.described,
            journal_seq=self._run.last_seq(),
            attempt=self._run.attempt,
            config=dict(self.options.values),
            **self._telemetry.state(),
        )
        if self._is_shared:
            state["sha256"] = {name: state_sha256(state[name]) for name in HASHED}
        elif not self.world.is_main:
            self._checkpoints.last_step = self.step
            return
        path = self._checkpoints.save(self.step, state, best=best)
        if self.world.is_main:
            log_checkpoint(self._run, self.step, path, state, best=best, reason=reason)
            self._control.saved(self.step)


def _shown(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _bar(setup: Setup[Any], run: Run, *, step: int) -> NoBar:
    num_epochs, num_steps = setup.options.NUM_EPOCHS, setup.schedule.num_steps
    journal = run.directory / JOURNAL
    return open_bar(journal, setup.batches, step=step, num_epochs=num_epochs, num_steps=num_steps)


def _profiler(setup: Setup[Any], run: Run) -> TorchProfiler:
    folder = asked_path("PROFILER_SAVE_DIR", setup.options.PROFILER_SAVE_DIR or PROFILER)
    return TorchProfiler(
        run.directory / folder,
        configured_profiler(setup.options.values),
        rank=setup.world.rank,
        attempt=run.attempt,
        device=setup.device.torch.type,
    )
