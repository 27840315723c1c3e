"""A tracker of Accelerate (`Accelerator(log_with=...)`), which writes into a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker

from monitoring.callbacks.described import adapter_fields, model_fields
from monitoring.callbacks.logged import Logged
from monitoring.callbacks.open_run import OpenRun, RunSettings
from monitoring.run import Run


class AccelerateTracker(GeneralTracker):  # type: ignore[misc] # accelerate is not typed
    """Records what `accelerator.log` is given: `Accelerator(log_with=AccelerateTracker("results/first"))`.

    `accelerator.init_trackers(project, config=...)` opens the run, `accelerator.end_training()` ends it.
    """

    name = "kharness"
    requires_logging_directory = False

    def __init__(
        self,
        directory: Path | str,
        *,
        run_name: str | None = None,
        project: str | None = None,
        trackers: Mapping[str, Mapping[str, object]] | None = None,
        gpu_monitor: bool | Mapping[str, Any] = False,
        agent: bool = True,
        model: Any = None,
    ) -> None:
        """A `model` is described in the start record; the rest is that of Run."""
        super().__init__()
        self._settings = RunSettings(Path(directory), run_name, project, trackers or {}, gpu_monitor, agent)
        self._model = model
        self._open: OpenRun | None = None
        self._logged = Logged()

    @property
    def tracker(self) -> Run | None:
        """The run; None before `init_trackers`."""
        return None if self._open is None else self._open.run

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Open the run with the configuration of `init_trackers`. Errors: those of Run."""
        self._open = OpenRun(self._settings, values)
        described = {} if self._model is None else model_fields(self._model)
        self._open.run.start(
            model={"name": None, "architecture": None, "parameters": None, **described},
            training=values,
            **adapter_fields(self._model),
            **self._open.resumed(0),
        )

    def log(self, values: dict[str, Any], step: int | None = None, **_: object) -> None:
        """Record a step, or an evaluation if the names say so (`val_loss`, `test/accuracy`)."""
        if self._open is None:
            self.store_init_configuration({})
        assert self._open is not None
        self._logged.record(self._open.run, values, step)

    def finish(self) -> None:
        """Write the end record."""
        if self._open is not None:
            self._open.is_trained = True
            self._open.close()
