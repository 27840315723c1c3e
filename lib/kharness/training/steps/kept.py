"""Steps serve a training (evaluations, epochs, checkpoints and its end, in order), or a check."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from kharness.config.output import say
from kharness.runs.bar_line import Bars
from kharness.runs.exit_codes import EXIT_STOPPED, STOPPED
from kharness.runs.files import WEIGHTS
from kharness.training.checkpoint import Checkpoints, training_state
from kharness.training.distributed.world import ALONE, World
from kharness.training.due import Every
from kharness.training.model_check import EnoughMeasured, MeasuredPhases
from kharness.training.resume import HASHED, log_checkpoint
from kharness.training.saving.hashed import state_sha256
from kharness.training.setup import Setup
from kharness.training.steps.epoch_bar import epoch_block
from kharness.training.steps.parts import StepParts
from monitoring.follower import upload_commands
from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import JOURNAL


class Purpose:
    """The use of steps: which samples they have, when they are evaluated, and what is kept of them.

    Those of a check end with their first evaluation, or with the last step, and have no record.
    """

    def __init__(self, setup: Setup[Any], parts: StepParts, *, step: int = 0) -> None:
        self.step = step
        """Updates done, over all attempts."""
        self._setup, self._parts = setup, parts

    @property
    def world(self) -> World:
        """The processes that evaluate."""
        return self._setup.world

    def batches(self) -> Iterator[Tensor]:
        """The samples of each step that is left, of all processes."""
        raise NotImplementedError

    def took(self, batch: Any) -> None:
        """A step has read these samples."""

    @property
    def has_record(self) -> bool:
        """Whether the latest step has one; FiniteWatch records those that are not finite."""
        return False

    @property
    def evaluation_is_due(self) -> bool:
        return False

    def evaluated(self, split: str, metrics: Mapping[str, float]) -> None:
        raise EnoughMeasured

    def end_step(self) -> bool:
        """A step and its evaluation have ended; returns whether another may follow."""
        return True

    def end_steps(self) -> None:
        """All steps have ended."""

    def finish(self, metrics: Mapping[str, float], about: Mapping[str, Any]) -> int:
        """The training has ended, with metrics on the test set and more for the end record."""
        raise EnoughMeasured

    def save(self, checkpoints: Checkpoints, *, best: bool = False, reason: str | None = None) -> None:
        """Write a checkpoint from which a later attempt resumes bit for bit."""
        setup, parts, step = self._setup, self._parts, self.step
        parts.update.wait()
        setup.weights.to_evaluate()
        state = training_state(
            setup.parts(),
            schedule=setup.schedule.described,
            journal_seq=parts.run.last_seq(),
            attempt=parts.run.attempt,
            config=dict(setup.options.values),
            **parts.telemetry.state(),
        )
        if parts.is_shared:
            state["sha256"] = {name: state_sha256(state[name]) for name in HASHED}
        elif not setup.world.is_main:
            checkpoints.last_step = step
            return
        path = checkpoints.save(step, state, best=best)
        if setup.world.is_main:
            log_checkpoint(parts.run, step, path, state, best=best, reason=reason)
            parts.control.saved(step)


class KeptSteps(Purpose):
    """Steps that train.

    - An evaluation is recorded before the end of its epoch, and both before the checkpoint: who resumes from
      that does not repeat them.
    - What a GPU has not delivered yet is checked before a checkpoint, as before an evaluation: neither is of
      spoiled weights.
    - A request to stop is looked at after the checkpoint, so that no step is lost or done twice.
    """

    def __init__(self, setup: Setup[Any], parts: StepParts, checkpoints: Checkpoints, *, step: int) -> None:
        super().__init__(setup, parts, step=step)
        self._first_step, self._checkpoints = step, checkpoints
        self._run, self._options = parts.run, setup.options
        self._evaluations = Every(epochs=1, steps=self._options.EVAL_INTERVAL)
        self._saves = Every.checkpoints(self._options.CHECKPOINT_EVERY, self._options.CHECKPOINT_UNIT)
        self._validation: dict[str, float] = {}
        self._outcome: dict[str, Any] = {}

    def batches(self) -> Iterator[Tensor]:
        batches = iter(self._setup.batches)
        while not self.is_over:
            yield next(batches)

    @property
    def is_over(self) -> bool:
        """All steps are done, or MAX_TIME is used up."""
        return self.step == self._setup.schedule.num_steps or self._parts.agreement.out_of_time

    @property
    def evaluation_is_due(self) -> bool:
        if self.step == self._first_step:
            return self.step == 0 and bool(self._options.EVAL_FIRST)
        if self._parts.control.evaluates:
            return True
        return self.is_over or self._evaluations.is_due(self.step, epoch=self._ended_epoch)

    @property
    def has_record(self) -> bool:
        if self.step == 1 and self._options.LOGGING_FIRST_STEP:
            return True
        if self._parts.telemetry.wants_record:
            return True
        strategy = self._options.LOGGING_STRATEGY or "steps"
        if strategy == "steps":
            return self.is_over or self._parts.control.records(self.step)
        return strategy == "epoch" and self._ended_epoch is not None

    @property
    def _ended_epoch(self) -> int | None:
        """The epoch (from 1) that the latest step ended; the last of all steps ends the epoch it is in."""
        batches = self._setup.batches
        if batches.position == 0:
            return batches.epoch
        return batches.epoch + 1 if self.is_over else None

    def evaluated(self, split: str, metrics: Mapping[str, float]) -> None:
        metrics = self.world.of_main(metrics)  # for what follows, all ranks have to agree
        named = {f"{split}_{name}": value for name, value in metrics.items()}
        self._log_eval(split, named)
        if self.step == 0:
            say(f"step 0/{self._setup.schedule.num_steps}  {shown(named)}")
        elif split == "val":
            self._validation = named

    def end_step(self) -> bool:
        epoch, validation, self._validation = self._ended_epoch, self._validation, {}
        if epoch:
            self._end_epoch(epoch, validation)
        elif validation:
            say(f"step {self.step}/{self._setup.schedule.num_steps}  {shown(validation)}")
        if "val_accuracy" in validation:
            self._setup.progress.note_accuracy(validation["val_accuracy"])
        is_best = "val_loss" in validation and self._checkpoints.improves(
            validation["val_loss"], step=self.step
        )
        control = self._parts.control
        requested = control.saves_for or None
        if self._saves.is_due(self.step, epoch=epoch) or (is_best and self._saves) or requested:
            self.save(self._checkpoints, best=is_best, reason=requested)
        if epoch or validation or self._checkpoints.last_step == self.step:
            self._parts.pace.restart()  # the time of evaluating and saving belongs to no step
        return not (self._parts.agreement.stop_is_requested or control.stops)

    def end_steps(self) -> None:
        """Save what is not saved yet; exits with 75 where a stop was requested."""
        self._end()
        if not self.is_over:
            stopped_by = self._parts.stop.requested
            self._run.finish(INTERRUPTED, cause=STOPPED, reason=stopped_by, **self._outcome)
            print(f"stopped by {stopped_by} after step {self.step}; everything is saved")
            self._print_uploads()
            sys.exit(EXIT_STOPPED)

    def finish(self, metrics: Mapping[str, float], about: Mapping[str, Any]) -> int:
        if not self._outcome:  # the steps were left before their end
            self._end()
        named: dict[str, Any] = {f"test_{name}": value for name, value in metrics.items()}
        if named:
            self._log_eval("test", named)
        self._run.finish(**named, **self._outcome, **about)
        if named:
            print(shown(named))
        self._print_uploads()
        return 0

    def _print_uploads(self) -> None:
        if self.world.is_main:
            for tracker, command in upload_commands(self._run.directory).items():
                say(f"{tracker}: this run is on this disk, not uploaded; to upload it:\n  {command}")

    def _log_eval(self, split: str, named: Mapping[str, float]) -> None:
        if self.world.is_main:
            self._run.log_eval(self.step, split=split, **named)

    def _end_epoch(self, epoch: int, validation: dict[str, float]) -> None:
        setup = self._setup
        train_loss = setup.progress.train_loss()
        measured = {"epoch_seconds": setup.progress.epoch_clock.seconds, **setup.pruner.measured()}
        if self.world.is_main:
            self._run.log_epoch(epoch, global_step=self.step, train_loss=train_loss, **validation, **measured)
        self._parts.bar.end_epoch(self.step)
        said = shown({"loss": train_loss, **validation})
        num_steps = setup.schedule.num_steps
        bars = Bars.of(
            num_epochs=self._options.NUM_EPOCHS,
            steps_per_epoch=setup.batches.steps_per_epoch,
            num_steps=num_steps,
        )
        of = f"/{bars.num_epochs}" if bars.num_epochs else ""
        place = (
            f"step {self.step}/{num_steps}"
            if setup.batches.position
            else f"epoch {epoch}{of}  step {self.step}"
        )
        say(f"{place}  {said}  {measured['epoch_seconds']:.1f} s")
        if self.world.is_main and self.step == num_steps:
            done, journal = self.step / setup.batches.steps_per_epoch, self._run.directory / JOURNAL
            rate = self._parts.update.rate
            print(epoch_block(journal, loss=train_loss, learning_rate=rate, epoch=done), flush=True)
        setup.progress.end_epoch()

    def _end(self) -> None:
        """Save what is not saved yet, and note what the end record has."""
        parts, progress = self._parts, self._setup.progress
        parts.profiler.close()
        parts.alerted.look(self.step, at_once=True)
        if self._checkpoints.last_step != self.step:
            self.save(self._checkpoints, reason=None if self.is_over else parts.stop.requested or None)
        if parts.is_shared:
            self._checkpoints.save_weights(self._run.directory / WEIGHTS, self._setup.model)
        parts.control.end(self.step, ended=COMPLETE if self.is_over else INTERRUPTED)
        best = self._checkpoints.best
        self._outcome = {
            "steps_done": self.step,
            "training_seconds": progress.clock.seconds,
            "training_cpu_seconds": progress.cpu_clock.seconds,
            "best_val_loss": best.val_loss if best else None,
            "best_val_accuracy": progress.best_accuracy,
            **self._setup.counted(),
            **parts.telemetry.end(),
            **self._setup.pruner.measured(),
        }


def shown(metrics: Mapping[str, float]) -> str:
    """Metrics as a line of a terminal has them."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


class CheckedSteps(Purpose):
    """Steps of which the first part is measured; they end in an evaluation."""

    def __init__(self, setup: Setup[Any], parts: StepParts, watch: MeasuredPhases) -> None:
        super().__init__(setup, parts)
        self._watch = watch

    @property
    def world(self) -> World:
        """The first batch of the evaluation ends it on each rank, and there may be but one."""
        return ALONE if self._watch.is_enough else self._setup.world

    def batches(self) -> Iterator[Tensor]:
        batches, size = iter(self._setup.batches), self._watch.part_size
        while not self._watch.is_enough:
            yield next(batches)[: size and size * self._setup.world.size]

    @property
    def evaluation_is_due(self) -> bool:
        return self._watch.is_enough

    def end_step(self) -> bool:
        if stopped_by := self._parts.stop.requested:
            print(f"stopped by {stopped_by}; nothing is kept")
            sys.exit(EXIT_STOPPED)
        return True

    def end(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, and end the run."""
        self.save(checkpoints)
        self._parts.run.finish(steps_done=self.step)
