"""The parts of the steps of a training, whatever the steps are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from kharness.config.places import asked_path
from kharness.training.distributed.model import ShardedModel, distributed_model
from kharness.training.guard import StopOnSignal
from kharness.training.setup import Setup
from kharness.training.steps.control import BETWEEN_ROUNDS, AlertedSteps, StepAgreement, StepControl
from kharness.training.steps.epoch_bar import NoBar, open_bar
from kharness.training.steps.telemetry import StepTelemetry, open_telemetry
from kharness.training.steps.update import GuardedUpdate
from monitoring import Record, Run
from monitoring.journal.files import JOURNAL, PROFILER
from monitoring.telemetry.pace import Pace, open_pace
from monitoring.telemetry.phases import Phases, open_phases
from monitoring.telemetry.profiler import TorchProfiler, configured_profiler


@dataclass(frozen=True)
class StepParts:
    """Each of them is called in every step (`Training`), and for what follows it (`Purpose`)."""

    run: Run
    stop: StopOnSignal
    pace: Pace
    phases: Phases
    telemetry: StepTelemetry
    model: nn.Module
    """The one that steps call; in several processes it averages gradients."""
    agreement: StepAgreement
    update: GuardedUpdate
    profiler: TorchProfiler
    control: StepControl
    alerted: AlertedSteps
    bar: NoBar
    """The progress bar, which a terminal shows within its `shown()`."""

    @classmethod
    def of(
        cls,
        setup: Setup[Any],
        run: Run,
        stop: StopOnSignal,
        *,
        step: int = 0,
        phases: Phases | None = None,
        changes: Iterable[Record] = (),
        timed: Sequence[Mapping[str, Any]] = (),
    ) -> StepParts:
        """`phases` measure the steps by themselves, so that no other telemetry does.

        `changes` are control_change records whose changes are made again, after the same steps. `timed` is
        what a checkpoint has of the telemetry of each rank.
        """
        options, world, device = setup.options, setup.world, setup.device.torch
        pace, marks = open_pace(device), phases or open_phases(device)

        def restart_clocks() -> None:  # what was done until now is none of a step's work
            pace.restart()
            marks.begin()

        telemetry = (
            StepTelemetry(setup)
            if phases
            else open_telemetry(setup, run.directory, timed=timed, counted=restart_clocks)
        )
        model = distributed_model(
            setup.model,
            world,
            device,
            marks,
            apart=setup.trained_apart(),
            find_unused=bool(options.DDP_FIND_UNUSED),
        )
        agreement = StepAgreement(
            world,
            stop,
            is_out_of_time=lambda: bool(options.MAX_TIME) and not setup.seconds_left(),
            between_rounds=BETWEEN_ROUNDS if device.type == "cuda" else 0.0,
        )
        profiler = TorchProfiler(
            run.directory / asked_path("PROFILER_SAVE_DIR", options.PROFILER_SAVE_DIR or PROFILER),
            configured_profiler(options.values),
            rank=world.rank,
            attempt=run.attempt,
            device=device.type,
        )
        control = StepControl(
            run,
            setup.progress.control,
            agreement,
            stop,
            log_every=options.LOG_EVERY,
            is_main=world.is_main,
            profile=profiler.request,
            changes=changes,
        )
        return cls(
            run=run,
            stop=stop,
            pace=pace,
            phases=marks,
            telemetry=telemetry,
            model=model,
            agreement=agreement,
            update=GuardedUpdate(setup, agreement, marks, run.log_step),
            profiler=profiler,
            control=control,
            alerted=AlertedSteps(run, setup.batches, world),
            bar=open_bar(
                run.directory / JOURNAL,
                setup.batches,
                step=step,
                num_epochs=options.NUM_EPOCHS,
                num_steps=setup.schedule.num_steps,
            ),
        )

    @property
    def is_shared(self) -> bool:
        """Whether ranks share the model (PARALLEL=fsdp)."""
        return isinstance(self.model, ShardedModel)
