"""The parts of the steps of a training, whatever the steps are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kharness.config.places import asked_path
from kharness.training.distributed.model import ShardedModel, distributed_model
from kharness.training.guard import StopOnSignal
from kharness.training.setup import Setup
from kharness.training.steps.control import BETWEEN_ROUNDS, AlertedSteps, StepAgreement, StepControl
from kharness.training.steps.epoch_bar import open_bar
from kharness.training.steps.telemetry import StepTelemetry
from kharness.training.steps.update import GuardedUpdate
from monitoring import Record, Run
from monitoring.journal.files import JOURNAL, PROFILER
from monitoring.telemetry.pace import open_pace
from monitoring.telemetry.phases import Phases, open_phases
from monitoring.telemetry.profiler import TorchProfiler, configured_profiler


class StepParts:
    """Each of them is called in every step (`Training`), and for what follows it (`Purpose`)."""

    def __init__(
        self,
        setup: Setup[Any],
        run: Run,
        stop: StopOnSignal,
        *,
        step: int = 0,
        phases: Phases | None = None,
        changes: Iterable[Record] = (),
        timed: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`phases` measure the steps by themselves, so that no other telemetry does.

        `changes` are control_change records whose changes are made again, after the same steps. `timed` is
        what a checkpoint has of the telemetry of each rank.
        """
        options, world, device = setup.options, setup.world, setup.device.torch
        self.run, self.stop = run, stop
        self.pace, self.phases = pace, marks = open_pace(device), phases or open_phases(device)

        def restart_clocks() -> None:  # what was done until now is none of a step's work
            pace.restart()
            marks.begin()

        self.telemetry = StepTelemetry(
            setup, directory=None if phases else run.directory, timed=timed, counted=restart_clocks
        )
        self.model = distributed_model(
            setup.model,
            world,
            device,
            marks,
            apart=setup.trained_apart(),
            find_unused=bool(options.DDP_FIND_UNUSED),
        )
        """The one that steps call; in several processes it averages gradients."""
        self.agreement = StepAgreement(
            world,
            stop,
            is_out_of_time=lambda: bool(options.MAX_TIME) and not setup.seconds_left(),
            between_rounds=BETWEEN_ROUNDS if device.type == "cuda" else 0.0,
        )
        self.update = GuardedUpdate(setup, self.agreement, marks, run.log_step)
        self.profiler = TorchProfiler(
            run.directory / asked_path("PROFILER_SAVE_DIR", options.PROFILER_SAVE_DIR or PROFILER),
            configured_profiler(options.values),
            rank=world.rank,
            attempt=run.attempt,
            device=device.type,
        )
        self.control = StepControl(
            setup, run, self.agreement, stop, profile=self.profiler.request, changes=changes
        )
        self.alerted = AlertedSteps(setup, run)
        self.bar = open_bar(
            run.directory / JOURNAL,
            setup.batches,
            step=step,
            num_epochs=options.NUM_EPOCHS,
            num_steps=setup.schedule.num_steps,
        )
        """The progress bar, which a terminal shows within its `shown()`."""

    @property
    def is_shared(self) -> bool:
        """Whether ranks share the model (PARALLEL=fsdp)."""
        return isinstance(self.model, ShardedModel)
