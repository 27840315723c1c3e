"""Imported by the program's own Python as it starts: records the calls of wandb, trackio and their like.

It runs in interpreters that know nothing of this package, of any version from 3.8 on: standard library only.
A line of the spool is {"time", "step", "values"}. What goes wrong here costs the recording, with one line on
stderr, and never the program.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # each program waits for what is imported here
    from collections.abc import Callable, Mapping
    from typing import Any

    Described = tuple[int | None, Mapping[str, Any]]
    Methods = tuple[tuple[str, str, Callable[..., Described]], ...]

# From monitoring.spool and monitoring.bridge.hook, which cannot be imported here.
SPOOL, ENDING = "MONITORING_SPOOL", ".hook.jsonl"

# Types that JSON has as `repr` shows them, but for NaN and infinities.
NUMBERS, LARGEST = frozenset((int, float)), 1e300


class CallRecorder:
    """Writes the spool file of this process; one of another rank than 0 writes none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = -1
        self._owners: dict[str, str] = {}
        """Metric -> what reports it: of two that report one metric the first counts."""
        self._within: set[int] = set()
        """Threads in a call that is recorded: what that calls in its turn says the same."""
        self._is_off = os.environ.get("RANK", "0") != "0"
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def recorded(
        self, by: str, call: Callable[..., Any], described: Callable[..., Described]
    ) -> Callable[..., Any]:
        """Return a function like `call` that records the step and values which its arguments describe."""
        names: dict[str, str] = {}  # as JSON; empty for what another reports

        def call_recorded(*arguments: Any, **named: Any) -> Any:
            thread = _thread.get_ident()
            if self._is_off or thread in self._within:
                return call(*arguments, **named)
            try:
                step, values = described(*arguments, **named)
                parts = []
                for name, value in values.items():
                    key = names.get(name)
                    if key is None:
                        is_own = self._owners.setdefault(plain(str(name)), by) == by
                        key = names[name] = f"{as_json(str(name))}:" if is_own else ""
                    if key and (text := as_json(value)) is not None:
                        parts.append(key + text)
                if parts:
                    self._write(step, ",".join(parts))
            except Exception as error:  # no program is ended by its recording
                if raised_by_handler(error):  # as if it had come before this call
                    raise
                self._is_off = True
                complain("nothing more is recorded in the process", error)
            try:
                self._within.add(thread)  # within the `try`: as this returns, a signal handler may raise
                return call(*arguments, **named)
            finally:
                self._within.discard(thread)

        call_recorded.__name__, call_recorded.__doc__ = call.__name__, call.__doc__
        call_recorded.__dict__["__wrapped__"] = call  # its signature, for inspect
        return call_recorded

    def _write(self, step: int | None, values: str) -> None:
        if self._file < 0:
            os.makedirs(self._folder, exist_ok=True)
            path = os.path.join(self._folder, f"{time.time_ns()}-{os.getpid()}{ENDING}")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        number = "null" if step is None else int(step)
        os.write(self._file, f'{{"time":{time.time():.6f},"step":{number},"values":{{{values}}}}}\n'.encode())

    def _forget(self) -> None:
        """Have a child that was forked write a file of its own."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def plain(name: str) -> str:
    """Return one name for what two trackers call `loss` and `train/loss`."""
    return name[6:] if name.startswith(("train/", "train_")) else name


def as_json(value: Any) -> str | None:
    """Return a value as JSON, NaN and infinities as Python has them; None for what is no number or text."""
    if type(value) in NUMBERS and -LARGEST < value < LARGEST:
        return repr(value)
    if value is None or isinstance(value, (bool, str, int, float, dict)):
        import json

        if isinstance(value, dict):
            found = [(json.dumps(str(name)), as_json(one)) for name, one in value.items()]
            return f"{{{','.join(f'{name}:{text}' for name, text in found if text is not None)}}}"
        return json.dumps(value)
    # a number of NumPy's, a tensor of one element
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 0)
    return as_json(value.item()) if size == 1 and hasattr(value, "item") else None


def complain(what: str, error: Exception) -> None:
    """Say on stderr what is not recorded, and why."""
    sys.stderr.write(f"note: --hook: {what}: {type(error).__name__}: {error}\n")


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program's raised an error: it gets the frame that it interrupts.

    Nothing else that is called here gets one, nor do the program's own values.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            if any(one is interrupted for one in (value if isinstance(value, tuple) else (value,))):
                return True
    return False


class Counted:
    """Steps of a run whose calls give none, counted as W&B and Trackio do."""

    def __init__(self, first: int) -> None:
        self._next = first

    def step(self, given: int | None, is_whole: bool) -> int:
        """Return the step of a call; after one that is `whole` the next step begins."""
        if given is not None:
            self._next = max(self._next, int(given))
        step = self._next
        self._next += is_whole
        return step


def steps_of(run: Any) -> Counted:
    """Return the count that a run carries."""
    if "_hook_steps" not in run.__dict__:
        run.__dict__["_hook_steps"] = Counted(int(getattr(run, "starting_step", 0) or 0))
    found: Counted = run.__dict__["_hook_steps"]
    return found


def of_wandb(
    run: Any, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any
) -> Described:
    return steps_of(run).step(step, bool(commit or (commit is None and step is None))), data


def of_trackio(run: Any, metrics: Mapping[str, Any], step: int | None = None, **_: Any) -> Described:
    return steps_of(run).step(step, True), metrics


def of_scalar(
    _: Any, tag: str, scalar_value: Any, global_step: int | None = None, *__: Any, **___: Any
) -> Described:
    return global_step, {tag: scalar_value}


def of_scalars(
    _: Any,
    main_tag: str,
    tag_scalar_dict: Mapping[str, Any],
    global_step: int | None = None,
    *__: Any,
    **___: Any,
) -> Described:
    return global_step, {f"{main_tag}/{name}": value for name, value in tag_scalar_dict.items()}


def of_trainer(trainer: Any, logs: Mapping[str, Any], *_: Any, **__: Any) -> Described:
    state = trainer.state
    if "train_runtime" in logs:  # of the whole training: its mean loss is no step's
        return state.global_step, {}
    values = dict(logs) if state.epoch is None else {**logs, "epoch": state.epoch}
    return state.global_step, values if state.is_world_process_zero else {}


WRITER: Methods = (
    ("SummaryWriter", "add_scalar", of_scalar),
    ("SummaryWriter", "add_scalars", of_scalars),
)
# Module -> the methods of its classes, and what their arguments say.
METHODS: dict[str, Methods] = {
    "wandb.sdk.wandb_run": (("Run", "log", of_wandb),),
    "trackio.run": (("Run", "log", of_trackio),),
    "torch.utils.tensorboard.writer": WRITER,
    "tensorboardX.writer": WRITER,
    "transformers.trainer": (("Trainer", "log", of_trainer),),
}


class TrackerFinder:
    """Finds the modules of METHODS as others do, and has their methods recorded once they are imported."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder
        self._left = dict(METHODS)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._left:
            return None
        methods = self._left.pop(name)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_recorded(module: Any) -> None:
            execute(module)
            try:
                for owner, method, described in methods:
                    of = vars(module)[owner]
                    setattr(of, method, self._recorder.recorded(name, getattr(of, method), described))
            except Exception as error:  # another release of it: it is imported all the same
                if raised_by_handler(error):
                    raise
                complain(f"{name} is not recorded in the process", error)

        spec.loader.exec_module = execute_recorded  # type: ignore[method-assign]
        return spec


def import_next() -> None:
    """Import the `sitecustomize` that this one stands before, under its name."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place) != here]
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get(SPOOL):
        sys.meta_path.insert(0, TrackerFinder(CallRecorder(os.environ[SPOOL])))
    import_next()
