"""What every training does alike; its model, forward pass, loss and evaluation stay in its train.py.

with open_training(argv, root=ROOT, model="lenet5", about=__doc__, prepare=prepare) as training:
    for indices in training.steps():
        images, labels = training.batch(training.data.train, indices)
        loss = F.cross_entropy(training.model(images), labels)
        training.update(loss)
        if training.evaluation_is_due:
            training.evaluated("val", **evaluate(training.model, training.data.validation))
    return training.finish(**evaluate(training.model, training.data.test))
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kharness.config.options import parse
from kharness.runs.exit_codes import EXIT_STOPPED, STOPPED
from kharness.runs.files import PREDICTIONS
from kharness.training.checkpoint import Checkpoints, restore, training_state
from kharness.training.console import lasting_output
from kharness.training.distributed.launch import launch
from kharness.training.distributed.model import distributed_model, unsynchronized
from kharness.training.distributed.world import is_launched, joined_world, one_prints
from kharness.training.due import Every
from kharness.training.errors import ResumeError
from kharness.training.guard import Buffers, FiniteWatch, StepSamples, StopOnSignal, named_causes
from kharness.training.model_check.step import EnoughMeasured, ModelCheck
from kharness.training.resume import ResumePoint, find_origin, log_checkpoint
from kharness.training.run_directory import open_run
from kharness.training.schedules import set_learning_rate
from kharness.training.setup import DataT, Prepare, Setup
from monitoring import Run
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.end_status import INTERRUPTED
from monitoring.journal.lineage import Lineage
from monitoring.telemetry.pace import open_pace
from monitoring.telemetry.phases import Phases, open_phases

BatchT = TypeVar("BatchT", covariant=True)


class Split(Protocol[BatchT]):
    """A part of the data."""

    def batch(self, indices: Tensor, /) -> BatchT:
        """What the model takes for the given indices."""


@contextmanager
def open_training(
    argv: Sequence[str], *, root: Path, model: str, about: str | None, prepare: Prepare[DataT]
) -> Iterator[Training[DataT]]:
    """The training that flags and configuration request, at the step that it continues from.

    It exits (SystemExit) with 0 where the run is complete already, and after the step of a DRY_RUN.
    KharnessError for what cannot be trained.
    """
    with lasting_output(), one_prints(os.environ):
        options, arguments = parse(argv, root=root, model=model, prog=f"{model}/train.py", description=about)
        if options.NUM_GPUS > 1 and not is_launched(os.environ):
            sys.exit(launch([sys.executable, str(root / model / "train.py"), *argv], options.NUM_GPUS))
        with joined_world(device=options.DEVICE, minutes=options.RANK_TIMEOUT) as world:
            with named_causes():
                setup = Setup.of(options, prepare, world)
            if options.values.get("DRY_RUN"):
                yield from _checked(setup, root=root)
            else:
                yield from _opened(setup, arguments.run_dir, root=root, from_scratch=arguments.from_scratch)


def _opened(
    setup: Setup[DataT], directory: Path | None, *, root: Path, from_scratch: bool
) -> Iterator[Training[DataT]]:
    options, world = setup.options, setup.world
    origin = find_origin(directory, options, from_scratch=from_scratch, **setup.data_identity())
    if origin.path != world.of_main(origin.path):
        raise ResumeError(
            f"{directory}: rank {world.rank} resumes from another checkpoint than rank 0",
            hint="all hosts need the run directory on a file system that they share",
        )
    if origin.complete:
        print(f"{directory} is complete; --from-scratch trains it again and keeps what is there")
        sys.exit(0)
    if origin.state:
        restore(origin.state, setup.parts())
    world.wait()  # rank 0 writes into the directory from here on, and no rank may look at it any more
    with (
        StopOnSignal() as stop,
        open_run(options, directory, root=root, identity=setup.identity(), world=world) as run,
    ):
        print(f"{origin}run: {run.directory}", flush=True)
        checkpoints = origin.begin(
            run, options, model=setup.described_model(), training=setup.plan(), is_main=world.is_main
        )
        step = origin.state["global_step"] if origin.state else 0
        with world.named_ends(), named_causes():
            yield Training(setup, run, checkpoints, stop, step=step)


def _checked(setup: Setup[DataT], *, root: Path) -> Iterator[Training[DataT]]:
    """A training of one step whose run is in a temporary folder; prints what it has taken and exits with 0.

    Each rank has a folder of its own: on several hosts there is none that they share.
    """
    options, world = setup.options, setup.world
    check = ModelCheck(setup)
    with (
        tempfile.TemporaryDirectory(prefix="kharness-check-") as folder,
        StopOnSignal() as stop,
        open_run(options, Path(folder), root=root, identity=setup.identity(), is_followed=False) as run,
    ):
        checkpoints = ResumePoint(Lineage()).begin(
            run, options, model=setup.described_model(), training=setup.plan()
        )
        with world.named_ends(), named_causes():
            training: CheckedTraining[DataT] = CheckedTraining(check, run, checkpoints, stop)
            with suppress(EnoughMeasured):
                yield training
            training.end()
    print(check.found())
    sys.exit(0)


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
    ) -> None:
        self.options, self.data = setup.options, setup.data
        self.step = step
        """Updates done, over all attempts."""
        self.num_steps = setup.schedule.num_steps
        self.models = {"": setup.model}
        """What to evaluate, by the prefix of its metrics: the model, and as `ema_` its moving average."""
        if setup.average is not None:
            self.models["ema_"] = setup.average.model
        self._setup, self._run, self._checkpoints, self._stop = setup, run, checkpoints, stop
        self.world = setup.world
        """The processes of the training."""
        self._evaluations = Every(epochs=1, steps=self.options.EVAL_INTERVAL)
        self._saves = Every.checkpoints(self.options.values)
        self._max_seconds = 60 * self.options.MAX_TIME
        self._weights = [weight for weight in setup.model.parameters() if weight.requires_grad]
        self._watch = FiniteWatch(
            record=run.log_step, max_skips=self.options.GUARD_MAX_SKIPS, skips=setup.progress.skips
        )
        self._pace, self._phases = open_pace(setup.device.torch), phases or open_phases(setup.device.torch)
        self.model = distributed_model(setup.model, setup.world, setup.device.torch, self._phases)
        """What a step and an evaluation call."""
        self._before_step = Buffers(setup.model if self.options.GUARD_MAX_SKIPS else None)
        self._rate, self._factor = 0.0, 1.0
        self._batch = torch.empty(0, dtype=torch.int64)
        self._out_of_time = False
        self._loss: Tensor | None = None
        self._validation: dict[str, float] = {}
        self._outcome: dict[str, Any] = {}
        self._samples: dict[str, Any] = {}
        setup.progress.start_clocks()

    def steps(self) -> Iterator[Tensor]:
        """The indices of each step that is left, epoch after epoch; exits with 75 when a stop was requested.

        Of several ranks each gets its part of the batch.

        Where the order of calls matters, in a step and after it:

        - The loss is checked before the update (`update`): weights that are NaN once stay so.
        - What a GPU has not delivered yet is checked before an evaluation and before a checkpoint
          (`FiniteWatch.wait`), so that none is made of spoiled weights.
        - An evaluation is recorded before the end of its epoch, and both before the checkpoint: who resumes
          from that does not repeat them.
        - An average that an optimiser keeps of the weights is in the model from an evaluation or checkpoint
          to the next step, which puts the trained weights back.
        - A request to stop is looked at after the checkpoint, so that no step is lost or done twice.
        """
        setup, batches = self._setup, iter(self._setup.batches)
        self._pace.restart()
        while not self._is_over:
            self._batch, before = next(batches), self.step
            indices, self._factor = self.world.part(self._batch)
            setup.weights.to_train()
            self._rate = setup.schedule(self.step)
            set_learning_rate(setup.optimizer, self._rate)
            setup.optimizer.zero_grad()
            self._before_step.keep()
            self._phases.begin()
            yield indices
            if self.step != before + 1:
                raise RuntimeError("each step of a training calls update() once")
            self._end_step()
            if self._stop_is_requested():
                break
        self._end_steps()
        if not self._is_over:
            self._run.finish(INTERRUPTED, cause=STOPPED, reason=self._stop.requested, **self._outcome)
            print(f"stopped by {self._stop.requested} after step {self.step}; everything is saved")
            sys.exit(EXIT_STOPPED)

    def batch(self, split: Split[BatchT], indices: Tensor) -> BatchT:
        """The samples of a step, or of a part of it; the time that it takes is the step's `data_seconds`."""
        found = split.batch(indices)
        self._phases.end("data_seconds")
        return found

    def micro_batches(self, indices: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The parts of a step by MICRO_BATCH_SIZE, each with its share of the step's samples."""
        *others, last = indices.split(self.options.MICRO_BATCH_SIZE or len(indices))
        with unsynchronized(self.model) if others else nullcontext():
            for part in others:
                yield part, len(part) / len(indices)
        yield last, len(last) / len(indices)

    def accumulate(self, loss: Tensor, *, share: float) -> None:
        """Add the gradients of a micro-batch, by its mean loss and its share of the step's samples.

        for part, share in training.micro_batches(indices):
            loss = …
            training.accumulate(loss, share=share)
        training.update()
        """
        share *= self._factor
        loss = loss if share == 1 else loss * share
        loss.backward()
        self._phases.end("forward_backward_seconds")
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

    def update(self, loss: Tensor | None = None, *, clip_norm: float | None = None) -> None:
        """Update the weights by the gradients of the step's mean loss, or of what was accumulated.

        `clip_norm` scales gradients of a greater total norm down to it; the record has the norm before.
        NonFiniteError before the update where the loss or the norm is not finite, on a GPU a few steps later.
        """
        setup = self._setup
        if loss is not None:
            self.accumulate(loss, share=1)
        assert self._loss is not None, "update() needs a loss, or accumulate() before it"
        loss, samples = self._mean(self._loss)
        self._loss = None
        norm = get_total_norm([weight.grad for weight in self._weights if weight.grad is not None])
        # Before clipping and the update: the record has the gradients as they came, and NaN stops the step.
        train_loss, grad_norm = self._watch.look(self.step + 1, loss, norm, samples)
        is_skipped = setup.progress.skips = self._watch.skips
        if is_skipped:
            self._before_step.put_back()
        else:
            if clip_norm is not None:
                clip_grads_with_norm_(self._weights, clip_norm, norm)
            setup.optimizer.step()
        self.step += 1
        if self._max_seconds:  # looked at once a step, so that all parts of it go by the same answer
            [out_of_time] = self.world.highest(setup.progress.clock.seconds >= self._max_seconds)
            self._out_of_time = bool(out_of_time)
        # After the update, which moves pruned weights too (momentum, weight decay), and inside its phase.
        setup.pruner.after_step(self.step)
        if setup.average is not None:
            setup.average.update()
        self._phases.end("optimizer_seconds")
        if not is_skipped:
            setup.progress.add(loss, len(self._batch))
        self._pace.step(len(self._batch))
        if (self._is_over or self.step % self.options.LOG_EVERY == 0) and not is_skipped:
            measured: dict[str, Any] = {**self._pace.read(), **self._phases.read()}
            measured |= {**setup.device.memory(), **setup.pruner.measured()}
            self._run.log_step(
                self.step, train_loss=train_loss, lr=self._rate, grad_norm=grad_norm, **measured
            )
        if self.evaluation_is_due:
            self._watch.wait()  # its metrics would be those of weights that are NaN already
            setup.weights.to_evaluate()

    @property
    def evaluation_is_due(self) -> bool:
        """Whether an evaluation follows this step: by EVAL_INTERVAL, and after the last step.

        Before the first step, in a run that does not resume: whether EVAL_FIRST wants the first weights
        evaluated.
        """
        if self.step == 0:
            return bool(self.options.values.get("EVAL_FIRST"))
        return self._is_over or self._evaluations.is_due(self.step, epoch=self._ended_epoch)

    def evaluated(self, split: str, **metrics: float) -> None:
        """Record an evaluation; the `loss` on the split `val` decides which checkpoint is the best.

        That of the first weights, which nobody has trained, decides nothing.
        """
        metrics = self.world.of_main(metrics)  # for what follows, all ranks have to agree
        named = {f"{split}_{name}": value for name, value in metrics.items()}
        self._log_eval(split, named)
        if self.step == 0:
            print(f"step 0/{self.num_steps}  {_shown(named)}", flush=True)
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
        if picture is not None:
            write_atomically(self._run.directory / PREDICTIONS, picture)
        if measured or predictions:
            found = {"predictions": predictions} if predictions else {}
            self._run.log_eval(self.step, split="inference", **measured, **found)
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
        return 0

    def _log_eval(self, split: str, named: Mapping[str, float]) -> None:
        if self.world.is_main:
            self._run.log_eval(self.step, split=split, **named)

    def _mean(self, loss: Tensor) -> tuple[Tensor, StepSamples]:
        """The loss of the batch, by each rank's own part of it, and which samples these are."""
        if self.world.size == 1:
            return loss, StepSamples([self._batch])
        losses = self.world.gathered(loss)
        self._phases.leave_out()
        return losses.mean(), StepSamples(self.world.parts(self._batch), losses)

    def _stop_is_requested(self) -> bool:
        """By a signal to any rank: all stop after the same step."""
        name = self._stop.requested
        if self.world.size > 1:
            [number] = self.world.highest(signal.Signals[name] if name else 0)
            name = signal.Signals(number).name if number else ""
            if name:  # else one that came since is for the next step
                self._stop.requested = name
        return bool(name)

    @property
    def _is_over(self) -> bool:
        """Whether the latest step was the last: all are done, or MAX_TIME is used up."""
        return self.step == self.num_steps or self._out_of_time

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
            print(f"step {self.step}/{self.num_steps}  {_shown(validation)}", flush=True)
        if "val_accuracy" in validation:
            self._setup.progress.note_accuracy(validation["val_accuracy"])
        is_best = "val_loss" in validation and self._checkpoints.improves(
            validation["val_loss"], step=self.step
        )
        if self._saves.is_due(self.step, epoch=epoch) or (is_best and self._saves):
            self._save(best=is_best)
        if epoch or validation or self._checkpoints.last_step == self.step:
            self._pace.restart()  # the time of evaluating and saving belongs to no step

    def _end_epoch(self, epoch: int, validation: dict[str, float]) -> None:
        progress = self._setup.progress
        train_loss = progress.train_loss()
        measured = {"epoch_seconds": progress.epoch_clock.seconds, **self._setup.pruner.measured()}
        if self.world.is_main:
            self._run.log_epoch(epoch, global_step=self.step, train_loss=train_loss, **validation, **measured)
        shown = _shown({"train_loss": train_loss, **validation})
        of = f"/{self.options.NUM_EPOCHS}" if self.options.NUM_EPOCHS else ""
        print(
            f"epoch {epoch}{of}  step {self.step}/{self.num_steps}  {shown}  "
            f"{measured['epoch_seconds']:.1f} s",
            flush=True,
        )
        progress.end_epoch()

    def _end_steps(self) -> None:
        """Save what is not saved yet, and note what the end record has."""
        progress, best = self._setup.progress, self._checkpoints.best
        if self._checkpoints.last_step != self.step:
            self._save(reason=None if self._is_over else self._stop.requested or None)
        self._outcome = {
            "steps_done": self.step,
            "training_seconds": progress.clock.seconds,
            "training_cpu_seconds": progress.cpu_seconds,
            "best_val_loss": best.val_loss if best else None,
            "best_val_accuracy": progress.best_accuracy,
            **self._setup.counted(),
            **self._setup.pruner.measured(),
        }

    def _save(self, *, best: bool = False, reason: str | None = None) -> None:
        """Write a checkpoint from which a later attempt resumes bit for bit."""
        self._watch.wait()
        self._setup.weights.to_evaluate()
        state = training_state(
            self._setup.parts(),
            schedule=self._setup.schedule.described,
            journal_seq=self._run.last_seq(),
            attempt=self._run.attempt,
            config=dict(self.options.values),
        )
        if not self.world.is_main:
            self._checkpoints.last_step = self.step
            return
        path = self._checkpoints.save(self.step, state, best=best)
        log_checkpoint(self._run, self.step, path, state, best=best, reason=reason)


class CheckedTraining(Training[DataT]):
    """Takes the first micro-batch of a step until it has been measured, then ends in the evaluation."""

    def __init__(self, check: ModelCheck, run: Run, checkpoints: Checkpoints, stop: StopOnSignal) -> None:
        super().__init__(check.setup, run, checkpoints, stop, step=0, phases=check)
        self._check = check

    def steps(self) -> Iterator[Tensor]:
        for indices in super().steps():
            yield indices[: self._check.part_size]

    @property
    def evaluation_is_due(self) -> bool:
        return self._is_over

    def evaluated(self, split: str, **metrics: float) -> None:
        raise EnoughMeasured

    def finish(self, **metrics: float) -> int:
        raise EnoughMeasured

    def end(self) -> None:
        """Write a checkpoint, and end the run."""
        before = time.perf_counter()
        self._save()
        self._check.saved(time.perf_counter() - before)
        self._run.finish(steps_done=self.step)

    @property
    def _is_over(self) -> bool:
        return self._check.is_enough

    def _end_step(self) -> None:
        if self._stop.requested:
            print(f"stopped by {self._stop.requested}; nothing is kept")
            sys.exit(EXIT_STOPPED)

    def _end_steps(self) -> None:
        """What a training saves here `end` saves."""


def _shown(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
