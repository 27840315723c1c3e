"""The steps of a training, as a train.py calls them: one class, which reads in the order of a step.

    steps()       requests of `make control`, the schedule's learning rate; gives the indices
    batch()       reads the samples
    accumulate()  backward; update(loss) does it for a step of one part
    gradients()   the place between backward and update: averaged over processes, not yet clipped
    update()      norm, check that loss and norm are finite, clipping, optimizer, pruning, averages, record
    evaluated()   where `evaluation_is_due`
    steps()       the end of an epoch, a checkpoint, a request to stop

docs/training.md says why in this order, docs/change-the-training.md what can be changed. CheckedTraining
(`--dry-run`, a trial of automatic settings) and InspectedTraining (`make inspect-batch`) stand around one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kharness.config.output import say
from kharness.config.places import asked_path
from kharness.runs.bar_line import Bars
from kharness.runs.exit_codes import EXIT_STOPPED, STOPPED
from kharness.runs.files import PREDICTIONS, WEIGHTS
from kharness.training.checkpoint import Checkpoints, training_state
from kharness.training.console import epoch_block, metrics_line, open_bar
from kharness.training.distributed.model import ShardedModel, distributed_model, unsynchronized
from kharness.training.due import Every
from kharness.training.guard import Buffers, FiniteWatch, Scalar, StepSamples, StopOnSignal
from kharness.training.optimizers._own import check_gradients_alone, laid_out
from kharness.training.resume import HASHED, ResumePoint, log_checkpoint
from kharness.training.samples_of_steps import AlertedSteps
from kharness.training.saving.hashed import state_sha256
from kharness.training.saving.sharded import full
from kharness.training.schedules import set_learning_rate
from kharness.training.setup import BatchT, DataT, Setup, Split
from kharness.training.steps.control import StepControl
from kharness.training.steps.own_metrics import OwnMetrics, Value
from kharness.training.steps.telemetry import StepTelemetry
from monitoring import Run
from monitoring.follower import upload_commands
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import JOURNAL, PROFILER
from monitoring.telemetry.pace import open_pace
from monitoring.telemetry.phases import Phases, open_phases
from monitoring.telemetry.profiler import TorchProfiler, configured_profiler


class Training(Generic[DataT]):
    """A training under way. Each step of `steps` calls `update` once, and `evaluated` where that is due."""

    # The current step:
    _batch = torch.empty(0, dtype=torch.int64)
    _factor = 1.0  # weight of this rank's mean loss in that of the step, times the number of ranks
    _share = 1.0  # of the micro-batch in the samples of this rank
    _loss: Tensor | None = None
    _rate = 0.0
    _moved: Mapping[str, float] = {}  # options of the optimizer that a schedule moves
    _validation: Mapping[str, float] = {}
    # The end record:
    _samples: Mapping[str, Any] = {}
    _outcome: Mapping[str, Any] = {}

    def __init__(
        self,
        setup: Setup[DataT],
        run: Run,
        stop: StopOnSignal,
        checkpoints: Checkpoints,
        *,
        origin: ResumePoint,
        phases: Phases | None = None,
    ) -> None:
        """`phases` measure the steps by themselves, so that no other telemetry does."""
        options, world, device = setup.options, setup.world, setup.device.torch
        resumed = origin.state or {}
        self.options, self.data = options, setup.data
        self.run = run
        """Its directory and journal."""
        self.stop = stop
        """Whether a signal requested a stop."""
        self.world = world
        """The processes of the training."""
        self.step = self._first_step = int(resumed.get("global_step", 0))
        """Updates done, over all attempts."""
        self.num_steps = setup.schedule.num_steps
        self.optimizer = setup.optimizer
        """The one of OPTIMIZER; what you set in its `param_groups` in a step holds from its update on."""
        self.module = setup.model
        """The model itself, for forward passes whose gradients `gradients_of` or `update_apart` takes."""
        apart = setup.trained_apart()
        self._phases = phases or open_phases(device)
        self.model = distributed_model(
            setup.model, world, device, self._phases, apart=apart, find_unused=bool(options.DDP_FIND_UNUSED)
        )
        """The model that steps and evaluations call; in several processes it averages gradients."""
        self._is_shared = isinstance(self.model, ShardedModel)  # with PARALLEL=fsdp
        self.models = {"": self.model if self._is_shared else setup.model}
        """Models to evaluate, by the prefix of their metrics: the model, and as `ema_` its moving average."""
        if setup.average is not None:
            self.models["ema_"] = setup.average.model
        self._setup, self._checkpoints = setup, checkpoints
        self._profiler = TorchProfiler(
            run.directory / asked_path("PROFILER_SAVE_DIR", options.PROFILER_SAVE_DIR or PROFILER),
            configured_profiler(options.values),
            rank=world.rank,
            attempt=run.attempt,
            device=device.type,
        )
        self._control = StepControl(setup, run, stop, profile=self._profiler.request, changes=origin.changes)
        self._alerted = AlertedSteps(setup, run)
        self._pace = open_pace(device)
        self._telemetry = StepTelemetry(
            setup,
            directory=None if phases else run.directory,
            timed=resumed.get("timers", ()),
            counted=self._restart_clocks,
        )
        self._bars = Bars.of(
            num_epochs=options.NUM_EPOCHS,
            steps_per_epoch=setup.batches.steps_per_epoch,
            num_steps=self.num_steps,
        )
        self._bar = open_bar(run.directory / JOURNAL, self._bars, step=self.step)
        self._weights = [w for w in setup.model.parameters() if w.requires_grad and w not in apart]
        skips = options.GUARD_MAX_SKIPS
        self._watch = FiniteWatch(run.log_step, max_skips=skips, skips=setup.progress.skips)
        self._watches = {name: FiniteWatch(run.log_step, name, max_skips=skips) for name in setup.apart}
        self._before_step = Buffers(setup.model if skips else None)
        self._evaluations = Every(epochs=1, steps=options.EVAL_INTERVAL)
        self._saves = Every.checkpoints(options.CHECKPOINT_EVERY, options.CHECKPOINT_UNIT)
        self._checks_waiting = bool(options.CUDA_SYNC_CHECK) and device.type == "cuda"
        self._own = OwnMetrics(world, device)
        setup.progress.start_clocks()

    def _restart_clocks(self) -> None:
        """Leave out of the step's times what was done until now."""
        self._pace.restart()
        self._phases.begin()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Within it a terminal has a bar, and the profiler keeps what it has, however the training ends."""
        try:
            with self._bar.shown():
                yield
        except torch.OutOfMemoryError:
            self._profiler.out_of_memory()
            raise
        finally:
            self._check_waiting(False)
            self._profiler.close()

    def steps(self) -> Iterator[Tensor]:
        """The indices of each step that is left, epoch after epoch; exits with 75 when a stop was requested.

        Of several ranks each gets its part of the batch.
        """
        self._pace.restart()
        batches = iter(self._setup.batches)
        while not self._is_over:
            step = self.step + 1
            yield self.begin_step(next(batches))
            if self.step != step:
                raise RuntimeError("each step of a training calls update() once")
            self._end_step()
            if self._control.stops:
                break
        self._end()
        if not self._is_over:
            stopped_by = self.stop.requested
            self.run.finish(INTERRUPTED, cause=STOPPED, reason=stopped_by, **self._outcome)
            print(f"stopped by {stopped_by} after step {self.step}; everything is saved")
            self._print_uploads()
            sys.exit(EXIT_STOPPED)

    @property
    def _is_over(self) -> bool:
        """All steps are done, or MAX_TIME is used up."""
        return self.step == self.num_steps or self._control.agreement.out_of_time

    def begin_step(self, batch: Tensor) -> Tensor:
        """Begin a step of these samples, of all ranks; returns those of this one."""
        setup, control, before = self._setup, self._control, self.step
        self._batch = batch
        self._profiler.begin_step(before + 1)
        indices, self._factor = setup.world.part(batch)
        control.look(before + 1)
        self._alerted.look(before)
        self._check_waiting(True)
        setup.weights.to_train()  # an average that an optimizer keeps of the weights leaves the model
        self._rate = setup.schedule(before) * control.settings.lr_factor
        for optimizer in (setup.optimizer, *setup.apart.values()):
            set_learning_rate(optimizer, self._rate)
            optimizer.zero_grad()
        self._moved = setup.option_schedules.set(before)
        self._before_step.keep()
        self._own.begin()
        self._phases.begin()
        self._telemetry.begin_step(before + 1)
        return indices

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
        # gradients add up on each rank, and are averaged over all by the last part's backward alone (DDP's
        # no_sync)
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
        self._own.add(metrics, weight=self._share * self._factor)

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
        share *= self._factor
        if report is not None:
            # The guard judges what is recorded: a finite report must not hide a loss that is not.
            report = torch.where(loss.detach().isfinite(), report.detach(), loss.detach())
        loss = loss if share == 1 else loss * share
        self._phases.end("forward_seconds")
        if gradients is None:
            loss.backward()
        else:
            # Averaged over ranks already: the factor, which makes up for unequal parts, is taken out.
            own_share = share / self._factor if self._factor else 0.0
            for name, weight in self.module.named_parameters():
                if (gradient := gradients.get(name)) is not None:
                    gradient = laid_out(gradient * own_share, weight)
                    weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        self._phases.end("backward_seconds")
        reported = loss.detach() if report is None else report * share
        self._loss = reported if self._loss is None else self._loss + reported

    def gradients_of(self, *losses: Tensor) -> list[dict[str, Tensor]]:
        """The gradients of each loss alone, by the parameters' names, averaged over all processes.

        The losses are those of `training.module`: in several processes `training.model` would wait for the
        one backward pass that it averages. TrainingError with PARALLEL=fsdp, and of several processes within
        `micro_batches`, of which each may have another number.
        """
        named = {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}
        found = (self._gradients_of(loss, list(named.values())) for loss in losses)
        return [dict(zip(named, gradients, strict=True)) for gradients in found]

    def _gradients_of(self, loss: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        check_gradients_alone(weights, is_part=self._share != 1 and self.world.size > 1)
        # ranks whose parts of the batch differ in size count by that size (World.part)
        scaled = loss if self._factor == 1 else loss * self._factor
        own = torch.autograd.grad(
            scaled, weights, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return self._setup.world.averaged(list(own))

    def update_apart(self, name: str, loss: Tensor, *, clip_norm: float | None = None) -> None:
        """Update what an optimizer apart (OwnOptimizers) trains, by a loss of its own; as often as you like.

        The loss is of `training.module`. Its gradients are averaged over all processes; NonFiniteError as
        `update` has it.
        """
        optimizer, watch = self._setup.apart[name], self._watches[name]
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        gradients = self._gradients_of(loss, weights)
        norm = get_total_norm(gradients)
        watch.look(self.step + 1, loss.detach(), norm)
        if not watch.skips:
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = laid_out(gradient, weight)
            if clip_norm is not None:
                clip_grads_with_norm_(weights, clip_norm, norm)
            optimizer.step()
            optimizer.zero_grad()

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the step's mean loss by name, between the last `accumulate` and `update`.

        Of several processes they are the mean already; with PARALLEL=fsdp each has its part (DTensor). Change
        them in place: the check that they are finite, their recorded norm, `clip_norm` and the optimizer come
        after that. A parameter that the loss does not depend on has none.
        """
        named = self.module.named_parameters()
        return {name: weight.grad for name, weight in named if weight.grad is not None}

    def update(
        self, loss: Tensor | None = None, *, clip_norm: float | None = None, report: Tensor | None = None
    ) -> None:
        """Update the weights by the gradients of the step's mean loss, or of what was accumulated.

        `clip_norm` scales gradients of a greater total norm down to it; the record has the norm before.
        `report` is what `accumulate` has it for. NonFiniteError before the update where the loss or the norm
        is not finite, on a GPU a few steps later; first GUARD_MAX_SKIPS such steps in a row are skipped.

        Where the order of calls matters: the record has the gradients as they came, so clipping follows the
        verdict. Pruned weights and averages follow the update, which moves the former too (momentum, weight
        decay); both are part of its phase.
        """
        if loss is not None:
            self.accumulate(loss, report=report)
        setup, step = self._setup, self.step + 1
        loss, samples = self._of_all_ranks()
        # torch.nn.utils.clip_grad_norm_ in its two halves, so that the norm is judged between them.
        norm = full(get_total_norm([weight.grad for weight in self._weights if weight.grad is not None]))
        train_loss, grad_norm = self._watch.look(step, loss, norm, samples)
        setup.progress.skips = self._watch.skips
        if self._watch.skips:
            self._before_step.put_back()  # statistics of batch norm, which the forward pass has changed
        else:
            if clip_norm is not None:
                clip_grads_with_norm_(self._weights, clip_norm, norm)
            setup.optimizer.step()
        setup.pruner.after_step(step)
        if setup.average is not None:
            setup.average.update()
            setup.pruner.after_average(setup.average.model)
        self._phases.end("optimizer_seconds")
        self.step = step
        self._telemetry.end_step()
        self._control.apply(step)
        self._pace.step(len(self._batch))
        if not self._watch.skips:
            setup.progress.add(loss, len(self._batch))
            if self._has_record:
                self._log_step(train_loss, grad_norm)
        self._bar.step(step)
        self._check_waiting(False)
        if self.evaluation_is_due:
            self.begin_evaluation()

    def _of_all_ranks(self) -> tuple[Tensor, StepSamples]:
        """The loss of the batch, by each rank's own part of it, and which samples these are."""
        own, self._loss = self._loss, None
        assert own is not None, "update() needs a loss, or accumulate() before it"
        world = self._setup.world
        if world.size == 1:
            self._control.agreement.exchange(own)
            return own, StepSamples([self._batch])
        # What follows waits for the slowest rank: it is none of this rank's own time.
        self._phases.own_work_done()
        losses = self._control.agreement.exchange(own)
        self._phases.leave_out()
        return losses.mean(), StepSamples(world.parts(self._batch), losses)

    @property
    def _has_record(self) -> bool:
        """Whether the latest step has one; FiniteWatch records those that are not finite."""
        if self._telemetry.activations.measured or (self.step == 1 and self.options.LOGGING_FIRST_STEP):
            return True
        strategy = self.options.LOGGING_STRATEGY or "steps"
        if strategy == "steps":
            return self._is_over or self._control.records(self.step)
        return strategy == "epoch" and self._ended_epoch is not None

    def _log_step(self, train_loss: Scalar, grad_norm: Scalar) -> None:
        measured: dict[str, Any] = {"train_loss": train_loss, "lr": self._rate, "grad_norm": grad_norm}
        measured |= {**self._pace.read(), **self._phases.read(), **self._moved}
        measured |= {**self._setup.device.memory(), **self._setup.pruner.measured()}
        measured |= self._telemetry.measured(self.step, measured)
        measured |= self._own.read(measured)
        self.run.log_step(self.step, measured)

    def _check_waiting(self, is_on: bool) -> None:
        """With CUDA_SYNC_CHECK whatever waits for a GPU raises RuntimeError up to the step's record.

        By torch.cuda.set_sync_debug_mode. Evaluations and checkpoints, which follow, wait and may.
        """
        if self._checks_waiting:
            torch.cuda.set_sync_debug_mode("error" if is_on else "default")

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

    def begin_evaluation(self) -> None:
        """Have in the model what is to be evaluated; `update` does so where an evaluation is due."""
        self._wait()  # its metrics would be those of weights that are NaN already
        self._setup.weights.to_evaluate()
        # Each rank has its own statistics of batch norm until a step begins; rank 0's are evaluated.
        self._setup.world.overwrite([b for model in self.models.values() for b in model.buffers()])

    def own_chunks(self, chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, int]]:
        """This process's chunks of an evaluation, each with how many of its samples count.

        Processes that share the model (PARALLEL=fsdp) call it equally often: one for which no chunk is left
        repeats another's, of which none counts.
        """
        if self._is_shared:
            return self.world.rounds(chunks)
        return ((chunk, len(chunk)) for chunk in self.world.own_chunks(chunks))

    def evaluated(self, split: str, **metrics: float) -> None:
        """Record an evaluation; the `loss` on the split `val` decides which checkpoint is the best.

        That of the first weights, which nobody has trained, decides nothing.
        """
        metrics = self.world.of_main(metrics)  # for what follows, all ranks have to agree
        named = self._log_eval(split, metrics)
        if self.step == 0:
            say(f"step 0/{self.num_steps}  {metrics_line(named)}")
        elif split == "val":
            self._validation = named

    def _log_eval(self, split: str, metrics: Mapping[str, float]) -> dict[str, float]:
        named = {f"{split}_{name}": value for name, value in metrics.items()}
        if self.world.is_main:
            self.run.log_eval(self.step, split=split, **named)
        return named

    @property
    def _ended_epoch(self) -> int | None:
        """The epoch (from 1) that the latest step ended; the last of all steps ends the epoch it is in."""
        batches = self._setup.batches
        if batches.position == 0:
            return batches.epoch
        return batches.epoch + 1 if self._is_over else None

    def _end_step(self) -> None:
        """Record an epoch that ends, then write a checkpoint, which so comes after its evaluation and epoch.

        A request to stop is looked at after that, so that no step is lost or done twice.
        """
        epoch, validation, self._validation = self._ended_epoch, self._validation, {}
        if epoch:
            self._end_epoch(epoch, validation)
        elif validation:
            say(f"step {self.step}/{self.num_steps}  {metrics_line(validation)}")
        if "val_accuracy" in validation:
            self._setup.progress.note_accuracy(validation["val_accuracy"])
        loss = validation.get("val_loss")
        is_best = loss is not None and self._checkpoints.improves(loss, step=self.step)
        requested = self._control.saves_for or None
        if self._saves.is_due(self.step, epoch=epoch) or (is_best and self._saves) or requested:
            self.save(best=is_best, reason=requested)
        if epoch or validation or self._checkpoints.last_step == self.step:
            self._pace.restart()  # the time of evaluating and saving belongs to no step

    def _end_epoch(self, epoch: int, validation: Mapping[str, float]) -> None:
        setup, progress = self._setup, self._setup.progress
        train_loss = progress.train_loss()
        pruned = {name: float(share) for name, share in setup.pruner.measured().items()}
        measured = {"epoch_seconds": progress.epoch_clock.seconds, **pruned}
        if self.world.is_main:
            self.run.log_epoch(epoch, global_step=self.step, train_loss=train_loss, **validation, **measured)
        self._bar.end_epoch(self.step)
        of = f"/{self._bars.num_epochs}" if self._bars.num_epochs else ""
        place = f"epoch {epoch}{of}  step {self.step}"
        if setup.batches.position:
            place = f"step {self.step}/{self.num_steps}"
        reached = metrics_line({"loss": train_loss, **validation, **pruned})
        say(f"{place}  {reached}  {measured['epoch_seconds']:.1f} s")
        if self.world.is_main and self.step == self.num_steps:
            done, journal = self.step / setup.batches.steps_per_epoch, self.run.directory / JOURNAL
            print(epoch_block(journal, loss=train_loss, learning_rate=self._rate, epoch=done), flush=True)
        progress.end_epoch()

    def save(self, *, best: bool = False, reason: str | None = None) -> None:
        """Write a checkpoint from which a later attempt resumes bit for bit."""
        setup, run, checkpoints = self._setup, self.run, self._checkpoints
        self._wait()  # no checkpoint is of spoiled weights
        setup.weights.to_evaluate()
        state = training_state(
            setup.parts(),
            schedule=setup.schedule.described,
            journal_seq=run.last_seq(),
            attempt=run.attempt,
            config=dict(self.options.values),
            **self._telemetry.state(),
        )
        if self._is_shared:
            state["sha256"] = {name: state_sha256(state[name]) for name in HASHED}
        elif not setup.world.is_main:
            checkpoints.last_step = self.step
            return
        path = checkpoints.save(self.step, state, best=best)
        if setup.world.is_main:
            log_checkpoint(run, self.step, path, state, best=best, reason=reason)
            self._control.done("checkpoint", self.step)

    def _wait(self) -> None:
        """Until every step so far is judged, which on a GPU is a few steps later."""
        for watch in (self._watch, *self._watches.values()):
            watch.wait()

    def _end(self) -> None:
        """Save what is not saved yet, and note what the end record has."""
        setup, progress = self._setup, self._setup.progress
        self._profiler.close()
        self._alerted.look(self.step, at_once=True)
        if self._checkpoints.last_step != self.step:
            self.save(reason=None if self._is_over else self.stop.requested or None)
        if self._is_shared:
            self._checkpoints.save_weights(self.run.directory / WEIGHTS, setup.model)
        self._control.end(self.step, ended=COMPLETE if self._is_over else INTERRUPTED)
        best = self._checkpoints.best
        self._outcome = {
            "steps_done": self.step,
            "training_seconds": progress.clock.seconds,
            "training_cpu_seconds": progress.cpu_clock.seconds,
            "best_val_loss": best.val_loss if best else None,
            "best_val_accuracy": progress.best_accuracy,
            **setup.counted(),
            **self._telemetry.end(),
            **setup.pruner.measured(),
        }

    def note_samples(self, texts: Sequence[str]) -> None:
        """Have the end record hold what the trained model wrote, and print it."""
        if texts:
            self._samples = {"samples": list(texts)}
            print("\n".join(["the trained model writes:", *texts]))

    def inferred(
        self,
        measured: Mapping[str, float],
        predictions: Sequence[Mapping[str, object]],
        picture: bytes | None = None,
    ) -> None:
        """Record what the trained model does, if it was requested; `picture` is a PNG of predictions."""
        if not self.world.is_main:
            return
        found: dict[str, object] = {"predictions": predictions} if predictions else {}
        if picture is not None:
            write_atomically(self.run.directory / PREDICTIONS, picture)
            found["pictures"] = {"predictions": PREDICTIONS}
        if measured or found:
            self.run.log_eval(self.step, split="inference", **measured, **found)
            print(metrics_line(measured))

    def finish(self, **metrics: float) -> int:
        """Record the end, with the metrics on the test set, at which nothing has looked before; returns 0."""
        if not self._outcome:  # the steps were left before their end
            self._end()
        named: dict[str, Any] = self._log_eval("test", metrics) if metrics else {}
        self.run.finish(**named, **self._outcome, **self._samples)
        if named:
            print(metrics_line(named))
        self._print_uploads()
        return 0

    def _print_uploads(self) -> None:
        if self.world.is_main:
            for tracker, command in upload_commands(self.run.directory).items():
                say(f"{tracker}: this run is on this disk, not uploaded; to upload it:\n  {command}")
