"""Train LeNet-5 on handwritten digits.

    python lenet5/train.py                              # .config, or this model's defaults
    python lenet5/train.py --optimizer adamw --num-epochs 5 --tracker trackio
    python lenet5/train.py --run-dir DIR                # goes on with a run, or begins it in DIR
    python lenet5/train.py --run-dir DIR --from-scratch # begins it anew and keeps what is there

Exit codes: 0 complete, 75 stopped on request with a checkpoint, 65 the loss is no longer a number, 71 out of
memory, 74 a checkpoint cannot be written, 2 a mistake that you can mend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kharness.config.errors import run_command
from kharness.config.options import Options, check_flags, parse

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = {"root": ROOT, "model": "lenet5", "prog": "lenet5/train.py", "description": __doc__}
if __name__ == "__main__":
    check_flags(**PROGRAM)

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import get_total_norm

from data import Splits, load_splits
from kharness.training.checkpoint import Checkpoints, restore, training_state
from kharness.training.console import lasting_output
from kharness.training.data import Batches, LabelledImages
from kharness.training.device import Device, choose_device, set_threads
from kharness.training.guard import EXIT_STOPPED, FiniteWatch, StopOnSignal, named_causes
from kharness.training.optimizers import build_optimizer
from kharness.training.progress import Progress
from kharness.training.pruning import Pruning, build_pruner
from kharness.training.resume import find_origin, log_checkpoint
from kharness.training.run_directory import open_run
from kharness.training.schedules import Schedule, set_learning_rate
from kharness.training.seeds import seed_everything
from model import LeNet5
from monitoring import Run
from monitoring.telemetry.pace import Pace
from monitoring.telemetry.phases import open_phases


@lasting_output()
def main(argv: Sequence[str]) -> int:
    """Train what the configuration says; 0 when complete, 75 when stopped on request."""
    options, arguments = parse(argv, **PROGRAM)
    training = prepare(options)
    origin = find_origin(
        arguments.run_dir,
        options,
        data_sha256=training.splits.sha256,
        from_scratch=arguments.from_scratch,
    )
    if origin.complete:
        print(f"{arguments.run_dir} is complete; --from-scratch trains it again, beside what is there")
        return 0
    if origin.state:
        training.take_up(origin.state)
    with (
        StopOnSignal() as stop,
        open_run(options, arguments.run_dir, root=ROOT, identity=training.identity()) as run,
    ):
        print(f"{origin}run: {run.directory}", flush=True)
        checkpoints = origin.begin(run, options, model=describe(training.model), training=training.plan())
        return fit(training, run, checkpoints, stop)


@dataclass
class Training:
    """What is trained, on what, and how far it got."""

    options: Options
    device: Device
    threads: int
    splits: Splits
    batches: Batches
    model: nn.Module
    optimizer: torch.optim.Optimizer
    optimizer_options: dict[str, Any]
    schedule: Schedule
    pruner: Pruning
    progress: Progress
    step: int = 0

    def identity(self) -> dict[str, Any]:
        """What run.json tells about this attempt, beside what every run tells."""
        return {"seed": self.options.SEED, "data_sha256": self.splits.sha256, "device": str(self.device)}

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Go on behind the step after which a checkpoint was made."""
        self.step = restore(
            state, model=self.model, optimizer=self.optimizer, pruner=self.pruner, batches=self.batches
        )
        self.threads = torch.get_num_threads()
        self.progress.load_state_dict(state["progress"])

    def plan(self) -> dict[str, Any]:
        """The start record's account of the training."""
        return {
            "num_steps": self.schedule.num_steps,
            "num_epochs": self.options.NUM_EPOCHS,
            "steps_per_epoch": self.batches.steps_per_epoch,
            "batch_size": self.options.BATCH_SIZE,
            "optimizer": self.optimizer_options,
            "schedule": asdict(self.schedule),
            "pruning": self.pruner.described,
            "dataset": {"name": self.options.DATASET, **self.splits.sizes},
            "cpu_threads": self.threads,
            **self.identity(),
        }


@named_causes()
def prepare(options: Options) -> Training:
    """Everything that can fail does so here, before the run begins."""
    device = choose_device(options.DEVICE)
    threads = set_threads(options.NUM_THREADS)
    seed_everything(options.SEED)

    # The images are whole tensors on the device; batches are indices into them.
    splits = load_splits(options, root=ROOT, device=device.torch)
    batches = Batches(len(splits.train), options.BATCH_SIZE, seed=options.SEED, device=device.torch)
    num_steps = options.NUM_EPOCHS * batches.steps_per_epoch
    num_steps = min(num_steps, options.MAX_STEPS or num_steps)

    # The model, its optimiser, the learning rate of every step, and what is pruned when.
    layout = torch.channels_last if options.CHANNELS_LAST else torch.contiguous_format
    model = LeNet5().to(device.torch).to(memory_format=layout)
    optimizer, optimizer_options = build_optimizer(options.OPTIMIZER, model, options.values)
    schedule = Schedule.read(options.values, num_steps=num_steps)
    pruner = build_pruner(options.PRUNING, model, optimizer, options.values, num_steps=num_steps)

    print(f"device: {device}, {threads} CPU threads")
    print(f"data: {options.DATASET}, " + ", ".join(f"{n:,} {name}" for name, n in splits.sizes.items()))
    print(f"plan: {num_steps:,} steps of {batches.batch_size} images, {options.OPTIMIZER}, {schedule.name}")
    return Training(
        options=options,
        device=device,
        threads=threads,
        splits=splits,
        batches=batches,
        model=model,
        optimizer=optimizer,
        optimizer_options=optimizer_options,
        schedule=schedule,
        pruner=pruner,
        progress=Progress(device.torch),
    )


@named_causes()
def fit(training: Training, run: Run, checkpoints: Checkpoints, stop: StopOnSignal) -> int:
    """Epoch by epoch: train, evaluate, save. The test set is looked at once, at the end."""
    options, batches, num_steps = training.options, training.batches, training.schedule.num_steps
    watch, progress = FiniteWatch(record=run.log_step), training.progress
    progress.start_clocks()
    while training.step < num_steps:
        epoch = batches.epoch + 1
        train_epoch(training, run, stop, watch)
        if stop.requested and batches.position and training.step < num_steps:
            break  # in mid-epoch; the checkpoint below holds the place
        watch.wait()
        val_loss, val_accuracy = evaluate(training.model, training.splits.validation)
        train_loss = progress.train_loss()
        validation = {"val_loss": val_loss, "val_accuracy": val_accuracy}
        measured = {"epoch_seconds": progress.epoch_clock.seconds, **training.pruner.measured()}
        run.log_eval(training.step, split="val", **validation)
        run.log_epoch(epoch, global_step=training.step, train_loss=train_loss, **validation, **measured)
        print(
            f"epoch {epoch}/{options.NUM_EPOCHS}  step {training.step}/{num_steps}  "
            f"train_loss {train_loss:.4f}  val_loss {val_loss:.4f}  val_accuracy {val_accuracy:.4f}  "
            f"{measured['epoch_seconds']:.1f} s",
            flush=True,
        )
        progress.end_epoch(val_accuracy)
        is_best = checkpoints.improves(val_loss, step=training.step)
        if checkpoints.is_due(epoch) or (is_best and options.CHECKPOINT_EVERY):
            save(training, checkpoints, run, watch, best=is_best)
        if stop.requested:
            break

    done = training.step == num_steps
    if checkpoints.last_step != training.step:
        save(training, checkpoints, run, watch, reason=None if done else stop.requested)
    outcome: dict[str, Any] = {
        "steps_done": training.step,
        "training_seconds": progress.clock.seconds,
        "training_cpu_seconds": progress.cpu_seconds,
        "best_val_loss": checkpoints.best.val_loss if checkpoints.best else None,
        "best_val_accuracy": progress.best_accuracy,
        **training.pruner.measured(),
    }
    if not done:
        run.finish("interrupted", cause="stopped", reason=stop.requested, **outcome)
        print(f"stopped by {stop.requested} after step {training.step}; everything is saved")
        return EXIT_STOPPED
    test_loss, test_accuracy = evaluate(training.model, training.splits.test)
    run.log_eval(training.step, split="test", test_loss=test_loss, test_accuracy=test_accuracy)
    run.finish(test_loss=test_loss, test_accuracy=test_accuracy, **outcome)
    print(f"test_accuracy {test_accuracy:.4f}  test_loss {test_loss:.4f}")
    return 0


def train_epoch(training: Training, run: Run, stop: StopOnSignal, watch: FiniteWatch) -> None:
    """The steps of an epoch that are left, up to a request to stop."""
    options, model, optimizer = training.options, training.model, training.optimizer
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    pace, phases = Pace(), open_phases(training.device.torch)
    for indices in training.batches.rest_of_epoch():
        phases.begin()
        images, labels = training.splits.train.batch(indices)
        phases.end("data_seconds")
        rate = training.schedule(training.step)
        set_learning_rate(optimizer, rate)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        phases.end("forward_backward_seconds")
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        # raises before the optimiser spoils the weights; on a GPU these stay tensors, so nothing waits
        train_loss, grad_norm = watch.look(training.step + 1, loss, norm)
        optimizer.step()
        training.step += 1
        training.pruner.after_step(training.step)
        phases.end("optimizer_seconds")
        training.progress.add(loss, len(indices))
        pace.step(len(indices))
        last = training.step == training.schedule.num_steps
        if last or training.step % options.LOG_EVERY == 0:
            measured = {**pace.read(), **phases.read()}
            measured |= {**training.device.memory(), **training.pruner.measured()}
            run.log_step(training.step, train_loss=train_loss, lr=rate, grad_norm=grad_norm, **measured)
        if last or stop.requested:
            break


@torch.inference_mode()
def evaluate(model: nn.Module, images: LabelledImages) -> tuple[float, float]:
    """Mean cross-entropy (nats) and accuracy (0 to 1)."""
    model.eval()
    loss = correct = torch.zeros((), device=images.labels.device)
    for chunk, labels in images.chunks(1000):
        logits = model(chunk)
        loss = loss + F.cross_entropy(logits, labels, reduction="sum")
        correct = correct + (logits.argmax(1) == labels).sum()
    model.train()
    return loss.item() / len(images), correct.item() / len(images)


def save(
    training: Training,
    checkpoints: Checkpoints,
    run: Run,
    watch: FiniteWatch,
    *,
    best: bool = False,
    reason: str | None = None,
) -> None:
    """Write a checkpoint that a later attempt can go on from, bit for bit."""
    watch.wait()
    state = training_state(
        model=training.model,
        optimizer=training.optimizer,
        schedule=training.schedule,
        pruner=training.pruner,
        batches=training.batches,
        journal_seq=run.last_seq(),
        attempt=run.attempt,
        config=training.options.values,
        progress=training.progress.state_dict(),
    )
    path = checkpoints.save(training.step, state, best=best)
    log_checkpoint(run, training.step, path, state, best=best, reason=reason)


def describe(model: nn.Module) -> dict[str, Any]:
    """Name, parameter count and layers, for the start record."""
    return {
        "name": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "architecture": {name: str(layer) for name, layer in model.named_children()},
    }


if __name__ == "__main__":
    run_command(main)
