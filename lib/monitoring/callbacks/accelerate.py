"""A tracker of Accelerate (`Accelerator(log_with=...)`), which writes into a run directory."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.tracking import GeneralTracker

from monitoring.callbacks.described import adapter_fields, model_config, model_fields
from monitoring.callbacks.logged import has_step, record
from monitoring.callbacks.open_run import UNKNOWN_MODEL, Begun, CallbackRuns, OpenRun, Resumed, RunSettings
from monitoring.callbacks.places import named_directory
from monitoring.callbacks.throughput import Fields, Throughput, flops_of_module, samples_in, tokens_in
from monitoring.run import Run

if TYPE_CHECKING:
    import torch

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


class AccelerateTracker(GeneralTracker):  # type: ignore[misc] # accelerate is not typed
    """Records what `accelerator.log` is given: `Accelerator(log_with=AccelerateTracker("results/first"))`.

    `accelerator.init_trackers(project, config=...)` begins a run and `accelerator.end_training()` ends it.
    After `accelerator.load_state` it is the next attempt of the run that saved that state; in a directory
    that has a run already, whether it is that or a new one is known at the first log.
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
        """A `model` is described in the start record and its pace is measured; the rest is that of Run."""
        super().__init__()
        self._runs = CallbackRuns(
            RunSettings(Path(directory), run_name, project, trackers or {}, gpu_monitor, agent)
        )
        self._model = model
        self._forwards = None if model is None else Forwards(model)
        self._config: dict[str, Any] = {}
        self._is_begun = False
        self._loaded: Path | None = None
        self._last_step: int | None = None
        _have_accelerators_tell()

    @property
    def tracker(self) -> Run | None:
        """The run; None before it is known which it is."""
        return None if self._runs.current is None else self._runs.current.run

    def start(self) -> None:
        """Begin a new training; values logged or loaded before belong to the previous one."""
        self._runs.close()
        self._config, self._last_step, self._is_begun = {}, None, True
        if self._forwards is not None:
            self._forwards.begin()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Open the run with the configuration of `init_trackers`. Errors: those of Run."""
        self._config |= values
        if self._loaded is not None or not self._runs.has_any():
            self._opened()

    def log(self, values: dict[str, Any], step: int | None = None, **_: object) -> None:
        """Record a step, or an evaluation if the names say so (`val_loss`, `test/accuracy`).

        Without steps they are counted from 1.
        """
        number = (self._last_step or 0) + 1 if step is None else step
        run = self._opened().run
        if self._forwards is None or not has_step(values):
            record(run, number, values)
        else:
            record(run, number, values, **self._forwards.read())
        self._last_step = number

    def finish(self) -> None:
        """Write the end record."""
        if self._is_begun:
            self._opened().end_training()
        self._runs.close()
        self._loaded, self._is_begun = None, False

    def saved(self, folder: Path) -> None:
        """Record a checkpoint that is complete on disk."""
        if self._is_begun:
            run = self._opened().run
            run.log_checkpoint(self._last_step or 0, checkpoint_path=named_directory(folder))

    def loaded(self, folder: Path) -> None:
        """Resume from a checkpoint, unless the training has begun before."""
        if self._runs.current is None:
            self._loaded = named_directory(folder)
            if self._is_begun:
                self._opened()

    def _opened(self) -> OpenRun:
        """Return the run, which is opened if it was not."""
        if self._runs.current is not None:
            return self._runs.current
        model = UNKNOWN_MODEL if self._model is None else {**UNKNOWN_MODEL, **model_fields(self._model)}
        fields, state = adapter_fields(self._model), PartialState()
        if state.num_processes == 1:  # else only one is known: accelerate calls trackers on one process alone
            fields |= {"device": str(state.device)}
        begun = Begun({**model_config(self._model), **self._config}, 0, model, self._config, fields)
        if (loaded := self._loaded) is None:
            return self._runs.begin_other(begun)
        found = self._runs.begin_training(
            begun, Resumed(None, loaded.name, lambda record: record.get("checkpoint_path") == str(loaded))
        )
        # such a script says only by `end_training` where its training ends, and not all call that
        found.is_training = False
        return found


class Forwards:
    """Measures the pace of a user's loop by its model's forward passes: Accelerate shows trackers no steps.

    It counts samples and tokens that the model is given in training; time of evaluations does not count. A
    compiled model is not counted: nothing is measured then.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.is_on = False
        """Whether this process records, and a training has begun."""
        self._throughput: Throughput | None = None
        self._is_evaluated = False
        self._measured: Fields = {}
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def begin(self) -> None:
        """A training begins."""
        self.is_on, self._throughput, self._is_evaluated, self._measured = True, None, False, {}

    def read(self) -> Fields:
        """Return fields of a step record, of the steps since the last reading; empty before the first."""
        if self._is_evaluated:
            found, self._measured = self._measured, {}
            return found
        return self._throughput.read() if self._throughput is not None else {}

    def _count(self, model: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        import torch  # the model's own

        if not self.is_on or torch.compiler.is_compiling():
            return
        if not model.training:
            if self._throughput is not None and not self._is_evaluated:
                self._measured, self._is_evaluated = self._throughput.read(), True
            return
        if self._throughput is None:
            self._begin_to_measure(model)
        assert self._throughput is not None
        if self._is_evaluated:
            self._throughput.restart()
            self._is_evaluated = False
        batch = named if named else inputs
        tokens = tokens_in(batch) * self._processes
        self._throughput.add(tokens, float(self._of_token * tokens) if tokens else None)
        samples = samples_in(batch) * self._processes
        if GradientState().sync_gradients:
            self._throughput.step(samples)
        else:
            self._throughput.add_samples(samples)

    def _begin_to_measure(self, model: torch.nn.Module) -> None:
        import torch  # the model's own

        state = AcceleratorState()
        weights = list(model.parameters())
        self._of_token = flops_of_module(model)
        self._processes = int(state.num_processes)
        self._throughput = Throughput(
            weights[0].device if weights else torch.device("cpu"),
            dtype=DTYPES.get(str(state.mixed_precision), "float32"),
            num_devices=self._processes,
        )


def _have_accelerators_tell() -> None:
    """Have `Accelerator.load_state` and `save_state` tell its trackers, which accelerate does not."""
    if hasattr(Accelerator.load_state, "tells"):
        return
    load, save = Accelerator.load_state, Accelerator.save_state

    @functools.wraps(load)
    def load_state(self: Any, *given: Any, **named: Any) -> Any:
        folders: list[str] = []  # which one, where accelerate chooses it

        def note(models: object, folder: str) -> None:
            folders.append(folder)

        hook = self.register_load_state_pre_hook(note)
        try:
            result = load(self, *given, **named)
        finally:
            hook.remove()
        for tracker in _trackers(self):
            tracker.loaded(Path(folders[-1]))
        return result

    @functools.wraps(save)
    def save_state(self: Any, *given: Any, **named: Any) -> Any:
        folder = save(self, *given, **named)
        for tracker in _trackers(self):
            tracker.saved(Path(folder))
        return folder

    load_state.tells = True  # type: ignore[attr-defined] # a function may have any
    Accelerator.load_state, Accelerator.save_state = load_state, save_state


def _trackers(accelerator: Any) -> list[AccelerateTracker]:
    """Return our trackers, on the process that logs."""
    if not accelerator.is_main_process:
        return []
    return [tracker for tracker in accelerator.log_with if isinstance(tracker, AccelerateTracker)]
