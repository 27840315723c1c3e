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
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kharness.config.options import parse
from kharness.training.checkpoint import restore
from kharness.training.console import lasting_output
from kharness.training.distributed.launch import launch
from kharness.training.distributed.world import is_launched, joined_world, one_prints
from kharness.training.errors import ResumeError
from kharness.training.guard import StopOnSignal, named_causes
from kharness.training.model_check.step import EnoughMeasured, ModelCheck
from kharness.training.resume import ResumePoint, find_origin
from kharness.training.run_directory import open_run
from kharness.training.setup import DataT, Prepare, Setup
from kharness.training.steps.checked import CheckedTraining
from kharness.training.steps.training import Training
from monitoring.journal.lineage import Lineage

__all__ = ["Training", "open_training"]


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
            training = Training(setup, run, checkpoints, stop, step=step, changes=origin.changes)
            with training.profiled():
                yield training


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
