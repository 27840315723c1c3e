"""Opens a training; its model, forward pass, loss and evaluation stay in its train.py.

with open_training(argv, root=ROOT, model="lenet5", about=__doc__, prepare=prepare) as training:
    for indices in training.steps():
        images, labels = training.batch(training.data.train, indices)
        loss = F.cross_entropy(training.model(images), labels)
        training.update(loss)
        if training.evaluation_is_due:
            training.evaluated("val", **evaluate(training.model, training.data.validation))
    return training.finish(**evaluate(training.model, training.data.test))

The same body serves four ends (docs/training.md): a training (`_opened`), the check of a model (`_checked`),
a trial of automatic settings (`_tried`) and a look at the samples of one step (`_inspected`).
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

from kharness.config.errors import is_launched, reported_once
from kharness.config.generate import write_files
from kharness.config.options import Options, parse
from kharness.config.places import TRAIN, asked_path, model_folder, output
from kharness.config.project_name import run_name
from kharness.runs.files import OUTPUT_LOG, STATUS_JSON
from kharness.runs.latest import shown
from kharness.runs.rundir import has_plan, link_latest, numbered
from kharness.training.autotune.search import Search, agreed, decided
from kharness.training.autotune.trial import BegunTrial, OwnTrial, Room, StepOnRequest, begin_trial
from kharness.training.checkpoint import restore
from kharness.training.console import KeptOutput, lasting_output, printing
from kharness.training.device import check_gpus, uses_gpu
from kharness.training.distributed.launch import launch, note_ready
from kharness.training.distributed.world import ALONE, World, joined_world, one_prints
from kharness.training.errors import ResumeError, TrainingError
from kharness.training.guard import StopOnSignal, named_causes
from kharness.training.model_check import EnoughMeasured, ModelCheck
from kharness.training.needs import check_common
from kharness.training.optimizers._own import BuildOptimizers, OwnOptimizers
from kharness.training.optimizers._uncompiled import spare_dynamo
from kharness.training.resume import ResumePoint, find_origin
from kharness.training.samples_of_steps import load_weights, report, step_indices
from kharness.training.setup import DataT, Prepare, Setup
from kharness.training.steps.measured import CheckedTraining, InspectedTraining
from kharness.training.steps.training import Training
from monitoring import Run
from monitoring.errors import refusal
from monitoring.follower import enabled_followers
from monitoring.gpu.options import GpuMonitorOptions, MachineMonitorOptions
from monitoring.journal.files import JOURNAL, METRICS_CSV
from monitoring.journal.lineage import Lineage
from monitoring.journal.run_state import read_end
from monitoring.telemetry.phases import Phases

__all__ = ["OwnOptimizers", "Training", "open_training"]


@contextmanager
def open_training(
    argv: Sequence[str],
    *,
    root: Path,
    model: str,
    about: str | None,
    prepare: Prepare[DataT],
    optimizers: BuildOptimizers | None = None,
) -> Iterator[Training[DataT]]:
    """The training that flags and configuration request, at the step that it continues from.

    `optimizers(model, options)` gives those of the script's own (OwnOptimizers) besides OPTIMIZER. It exits
    (SystemExit) with 0 where the run is complete already, and after the step of a DRY_RUN. KharnessError for
    what cannot be trained.
    """
    if not gc.isenabled():  # since begin_script
        gc.freeze()
        gc.enable()
    with lasting_output() as kept, one_prints(os.environ):
        with reported_once():
            options, arguments = parse(
                argv,
                root=root,
                model=model,
                prog=f"{model}/train.py",
                description=about,
                is_named=_by_launcher,
            )
            check_common(options.values)
        directory, scratch = arguments.run_dir, arguments.from_scratch
        if options.NUM_GPUS > 1 and not is_launched(os.environ):
            check_gpus(options.DEVICE, options.NUM_GPUS)
            script = str(model_folder(root, model) / TRAIN)
            sys.exit(launch([sys.executable, script, *argv], options.NUM_GPUS))
        build = partial(Setup, prepare=prepare, optimizers=optimizers)
        spare_dynamo()
        with printing(options):
            # Before the ranks join: a trial is forked from this process, which until then has neither threads
            # of a process group nor a context on a GPU.
            search = decided(options, World.of(os.environ), run_directory=None if scratch else directory)
            with reported_once():
                options = yield from _with_trials(search, build, root=root)
            with joined_world(
                device=options.DEVICE, minutes=options.RANK_TIMEOUT, deterministic=bool(options.DETERMINISTIC)
            ) as world:
                options = agreed(options, world)
                with named_causes():
                    setup = build(options, world=world)
                if options.INSPECT_STEP:
                    yield from _inspected(setup, directory, root=root)
                elif options.DRY_RUN:
                    yield from _checked(setup, root=root)
                else:
                    yield from _opened(setup, directory, kept, root=root, from_scratch=scratch)


def _with_trials(
    search: Search[Options, Options], build: Callable[..., Setup[DataT]], *, root: Path
) -> Generator[Training[DataT], None, Options]:
    """Return what a search finds. Yield the training of each of its trials, in a process of its own."""
    trial: BegunTrial | None = None
    with closing(search):
        while True:
            try:
                options = next(search) if trial is None else search.send(trial)
            except StopIteration as end:
                found: Options = end.value
                return found
            begun = begin_trial()
            if isinstance(begun, OwnTrial):
                yield from _tried(begun, options, build, root=root)
            else:
                trial = begun


def _tried(
    trial: OwnTrial, options: Options, build: Callable[..., Setup[DataT]], *, root: Path
) -> Iterator[Training[DataT]]:
    """The training of a trial, whose process ends with it."""
    with trial.last(), named_causes():
        world = World.of(os.environ)
        room = Room(ranks=world.local_size)
        if not uses_gpu(options.DEVICE):
            room.limit()
        alone = World(local_rank=world.local_rank, local_size=world.local_size)
        setup = build(options, world=alone)
        steps = StepOnRequest(setup, trial, room, ranks=world.size)
        with _begun(setup, trial.folder, None, root=root, phases=steps) as training:
            yield cast("Training[DataT]", CheckedTraining(training, steps))


def _opened(
    setup: Setup[DataT], directory: Path | None, kept: KeptOutput, *, root: Path, from_scratch: bool
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
    with _begun(setup, directory, origin, root=root) as training, training.under_way():
        note_ready(os.environ)
        run = training.run
        by_launcher = _by_launcher(run.directory)
        if world.is_main and not by_launcher:
            kept.keep_in(run.directory / OUTPUT_LOG)
        else:
            kept.drop()
        print(origin, end="")
        if not by_launcher:
            print(f"[telemetry] run_name={run.name}")
            print(f"[telemetry] Logging to {shown(run.directory / JOURNAL)} (and {METRICS_CSV})")
        sys.stdout.flush()
        yield training


@contextmanager
def _begun(
    setup: Setup[DataT],
    directory: Path | None,
    origin: ResumePoint | None,
    *,
    root: Path,
    phases: Phases | None = None,
) -> Iterator[Training[DataT]]:
    """A training from its origin on, whose start is recorded; without one in a folder that nobody keeps."""
    options, world = setup.options, setup.world if origin else ALONE
    with (
        StopOnSignal() as stop,
        open_run(
            options, directory, root=root, identity=setup.identity(), world=world, is_followed=bool(origin)
        ) as run,
    ):
        origin = origin or ResumePoint(Lineage())
        checkpoints = origin.begin(
            run, options, model=setup.described_model(), training=setup.plan(), is_main=world.is_main
        )
        with setup.world.named_ends(), named_causes():
            yield Training(setup, run, stop, checkpoints, origin=origin, phases=phases)


def _by_launcher(directory: Path) -> bool:
    """Whether make or a matrix has started the training: it keeps the output and has named the directory."""
    return (directory / STATUS_JSON).exists()


def _checked(setup: Setup[DataT], *, root: Path) -> Iterator[Training[DataT]]:
    """A training of one step whose run is in a temporary folder; prints what it has taken and exits with 0.

    Each rank has a folder of its own: on several hosts there is none that they share.
    """
    check = ModelCheck(setup)
    with (
        tempfile.TemporaryDirectory(prefix="kharness-check-") as folder,
        _begun(setup, Path(folder), None, root=root, phases=check) as training,
    ):
        with suppress(EnoughMeasured):
            yield cast("Training[DataT]", CheckedTraining(training, check))
        before = time.perf_counter()
        training.save()
        training.run.finish(steps_done=training.step)
        check.saved(time.perf_counter() - before)
    print(check)
    sys.exit(0)


def _inspected(setup: Setup[DataT], directory: Path | None, *, root: Path) -> Iterator[Training[DataT]]:
    """A training of the samples of one step of a past run, one by one; prints them and exits with 0."""
    if directory is None:
        raise ResumeError("INSPECT_STEP needs a run", hint="make inspect-batch RUN=dir STEP=n")
    start, step = read_end(directory / JOURNAL).start, setup.options.INSPECT_STEP
    ranks = start.get("world_size", 1)
    step_indices(setup, step)
    print(f"step {step} of {directory}; losses by weights: {load_weights(setup, directory)}")
    with (
        tempfile.TemporaryDirectory(prefix="kharness-inspect-") as folder,
        _begun(setup, Path(folder), None, root=root) as training,
    ):
        inspected = InspectedTraining(training, setup, ranks=ranks if isinstance(ranks, int) else 1)
        with suppress(EnoughMeasured):
            yield cast("Training[DataT]", inspected)
    open_tokenizer = getattr(setup.data, "open_tokenizer", None)
    decode = open_tokenizer().decode if open_tokenizer else None
    print("\n".join(report(inspected.samples, run=directory, step=step, decode=decode)))
    sys.exit(0)


@contextmanager
def open_run(
    options: Options,
    directory: Path | None,
    *,
    root: Path,
    identity: Mapping[str, object],
    world: World = ALONE,
    is_followed: bool = True,
) -> Iterator[Run]:
    """The run in `directory`, or in a new one below RESULTS_DIR; TRACKER_RUN_NAME names it in trackers.

    A new one is the newest: `latest` in RESULTS_DIR points at it.

    The directory holds the configuration that is trained with before the caller continues. `identity` goes
    into run.json. Each rank opens the same directory and writes its own journal. TrainingError if no
    directory can be made; one that another process trains stays as it is. A run that is not followed has no
    tracker, exporter or monitor.
    """
    name = run_name(options.values, root, datetime.now(UTC))
    is_new = directory is None
    if directory is None:
        directory = world.of_main(_new_directory(options, name, root) if world.is_main else None)
        assert directory is not None
    in_matrix = has_plan(directory.absolute().parent)
    with Run(
        directory,
        name=name,
        project=options.TRACKER_PROJECT,
        group=directory.absolute().parent.name if in_matrix else None,
        config=options.values,
        trackers=enabled_followers(options.values) if is_followed else {},
        identity=identity,
        gpu_monitor=GpuMonitorOptions.configured(options.values) if is_followed else False,
        machine_monitor=MachineMonitorOptions.configured(options.values) if is_followed else False,
        agent=is_followed,
        rank=world.rank,
        quiet=True,  # the training says it among its own lines
    ) as run:
        # Not before: now nobody else writes here.
        if world.is_main:
            write_files(options.files(), directory)
            if is_new:
                with suppress(OSError):  # a file system without links: the run trains all the same
                    link_latest(directory)
        yield run


def _new_directory(options: Options, name: str, root: Path) -> Path:
    """RESULTS_DIR/NAME, or NAME_2 and so on: never one that exists."""
    results = output(root) / asked_path("RESULTS_DIR", options.RESULTS_DIR)
    number = 1
    while True:
        directory = results / numbered(name, number)
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            number += 1
        except OSError as error:
            raise TrainingError(
                f"{directory} cannot be made: {refusal(error)}",
                hint="set RESULTS_DIR to a folder that you can write to",
            ) from error
