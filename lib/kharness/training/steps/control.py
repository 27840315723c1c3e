"""Between two steps: requests to the training (monitoring.control)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kharness.training.distributed.agreement import BETWEEN_ROUNDS, StepAgreement
from kharness.training.guard import StopOnSignal
from kharness.training.setup import Setup
from monitoring import Record, Run
from monitoring.control import Change, ControlFile, ControlRequest, RefusedRequest

# Words that are answered once they are done, after the step's update.
_LATER = ("checkpoint", "stop")


class StepControl:
    """Requests to a training while it runs: each step calls `look`, then `apply`.

    Rank 0 alone looks for them, between two steps, and answers in the journal. All ranks apply a request
    in the step that follows: `log_every` counts from that step's record on, `lr_factor` from the next step
    on, and evaluation, checkpoint and stop follow that step's update. A checkpoint is answered once it is
    written, a stop once all is saved: until then they are done again after a SIGKILL.
    """

    def __init__(
        self,
        setup: Setup[Any],
        run: Run,
        stop: StopOnSignal,
        *,
        profile: Callable[[int], None],
        changes: Iterable[Record] = (),
    ) -> None:
        """`changes` are control_change records to apply again, after the step that each names.

        `profile` begins to profile so many steps.
        """
        is_main = setup.world.is_main
        self.settings = setup.progress.control
        self.evaluates = False
        """Whether an evaluation was requested after this step."""
        self.saves_for = ""
        """Who requested a checkpoint after this step."""
        self.agreement = StepAgreement(
            setup.world,
            stop,
            is_out_of_time=lambda: bool(setup.options.MAX_TIME) and not setup.seconds_left(),
            between_rounds=BETWEEN_ROUNDS if setup.device.is_gpu else 0.0,
        )
        self._run, self._stop, self._is_main = run, stop, is_main
        self._is_last = False
        self._profile = profile
        self._log_every = int(setup.options.LOG_EVERY)
        self._replays: dict[int, list[ControlRequest]] = {}
        for change in changes if is_main else ():
            self._replays.setdefault(int(str(change["global_step"])), []).append(_recorded(change))
        self._file = ControlFile(run.directory) if is_main else None
        self._unanswered: dict[str, list[ControlRequest]] = {word: [] for word in _LATER}

    @property
    def stops(self) -> bool:
        """Whether this step is the last of this attempt: all ranks know the request, or the signal."""
        return self.agreement.stop_is_requested or self._is_last

    def records(self, step: int) -> bool:
        """Whether a step has a record, if it is not the last."""
        return step % (self.settings.log_every or self._log_every) == 0

    def look(self, step: int) -> None:
        """Before the `step`-th step: submit what is to be applied in it."""
        self.evaluates, self.saves_for = False, ""
        if self._file is None:
            return
        for request in (*self._replays.pop(step, ()), *self._file.requests()):
            if isinstance(request, RefusedRequest):
                self._refused(self._file, step, request)
            else:
                self.agreement.submit(request)

    def apply(self, step: int) -> None:
        """Apply what was submitted on rank 0, in the `step`-th step, after its exchange."""
        for request in self.agreement.requests:
            for name, value in request.changes.items():
                self._changed(step, name, value, request)
            self._answered(request)

    def done(self, name: str, step: int) -> None:
        """Answer who requested a checkpoint that is written by now, or a stop before which all is saved."""
        due, self._unanswered[name] = self._unanswered[name], []
        for request in due:
            self._log(step, name, request)
            self._answered(request)

    def end(self, step: int, *, ended: str) -> None:
        """Answer what is left when all is saved: who requested the stop, and who came too late."""
        self.done("stop", step)
        if self._file is not None:
            for found in self._file.rest(f"the training has ended: {ended}"):
                self._refused(self._file, step, found)

    def _changed(self, step: int, name: str, value: Change, request: ControlRequest) -> None:
        settings = self.settings
        old: float | None = None
        if name == "log_every":
            old, settings.log_every = settings.log_every or self._log_every, int(value)
        elif name == "lr_factor":
            old, settings.lr_factor = settings.lr_factor, float(value)
        elif name == "profile":
            self._profile(int(value))
        elif name == "evaluate":
            self.evaluates = True
        elif name == "checkpoint":
            self.saves_for = request.source
        elif name == "stop":
            self._is_last = True
            self._stop.requested = self._stop.requested or request.source
        if not self._is_main:
            return
        was = f", was {old}" if old is not None else ""
        print(f"step {step}: {name}={value}{was}, requested by {request.source}", flush=True)
        if name in _LATER:
            self._unanswered[name].append(request)
        else:
            self._log(step, name, request, old=old)

    def _log(self, step: int, name: str, request: ControlRequest, *, old: float | None = None) -> None:
        about = {"requested_value": request.requested[name]} if name in request.requested else {}
        self._run.log_control_change(
            step,
            control=name,
            old=old,
            new=request.changes[name],
            source=request.source,
            request_time=request.timestamp,
            request=request.name or None,
            **about,
            **({"replayed": True} if request.is_replayed else {}),
        )

    def _answered(self, request: ControlRequest) -> None:
        """Have its file removed, once nothing of it is left to be done."""
        is_done = all(request is not other for waiting in self._unanswered.values() for other in waiting)
        if self._file is not None and is_done and not request.is_replayed:
            self._file.answered(request)

    def _refused(self, file: ControlFile, step: int, request: RefusedRequest) -> None:
        self._run.log_control_refused(
            step,
            reason=request.reason,
            source=request.source,
            request_time=request.timestamp,
            request=request.name or None,
        )
        print(f"step {step}: a request by {request.source} is refused: {request.reason}", flush=True)
        file.answered(request)


def _recorded(change: Record) -> ControlRequest:
    """The request for one change of a control_change record."""
    name, new = str(change["control"]), change["new"]
    requested = {name: change["requested_value"]} if "requested_value" in change else {}
    time = change.get("request_time")
    assert isinstance(new, (int, float))
    source, of = str(change.get("source")), str(change.get("request") or "")
    return ControlRequest({name: new}, float(str(time or 0)), source, requested, of, is_replayed=True)
