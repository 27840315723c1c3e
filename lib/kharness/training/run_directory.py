"""The run of a training: its directory with the configuration in it, its names and its trackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from kharness.config.generate import write_files
from kharness.config.options import Options
from kharness.config.places import asked_path, output
from kharness.config.project_name import run_name
from kharness.runs.rundir import has_plan, link_latest, numbered
from kharness.training.distributed.world import ALONE, World
from kharness.training.errors import TrainingError
from monitoring import Run
from monitoring.follower import enabled_followers
from monitoring.gpu.options import configured_gpu_monitor, configured_machine_monitor


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
        gpu_monitor=configured_gpu_monitor(options.values) if is_followed else False,
        machine_monitor=configured_machine_monitor(options.values) if is_followed else False,
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
                f"{directory} cannot be made: {(error.strerror or str(error)).lower()}",
                hint="set RESULTS_DIR to a folder that you can write to",
            ) from error
