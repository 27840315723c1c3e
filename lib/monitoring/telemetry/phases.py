"""Times the phases of a step: the wait for data, forward and backward, and the update of the weights.

A rank that waits for others is as busy as they are; its own work, without collectives, shows who is slow
(monitoring.telemetry.load_balance). So a loop marks the end of each phase, and leaves out what passes in
collectives: by `leave_out`, or with DistributedDataParallel, which waits within backward, by `watch_ddp`.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from monitoring.telemetry.device_pool import POOL, DevicePool, DeviceScalar, Event, EventLine, TorchDevice

# In the order of a step; the names are those of step records, in seconds per step.
PHASES = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")

PARTS = ("forward_seconds", "backward_seconds")
"""A step may end these two in the place of the second phase, which is then both together."""

# Steps of a reading whose events are kept without a look whether they have passed.
MAX_IN_FLIGHT = 64

COLLECTIVE = "collective_seconds"
"""Seconds per step left out of the phases: without them a phase may hold waiting for other ranks."""

# Name of a mark whose phase the next `end` gives.
_OWN_WORK = "own work"

_STEP_ENDS = PHASES[-1]

_Marks = list[tuple[str, Event]]
"""Marks of one step, each with the phase that it ends; "" for none."""


class Phases(Protocol):
    """A step calls `begin`, then `end` with each of PHASES in their order, and `leave_out` where it waits."""

    def begin(self) -> None: ...

    def end(self, phase: str) -> None: ...

    def leave_out(self) -> None:
        """Count what has passed since the last call, such as a collective, in no phase."""

    def own_work_done(self) -> None:
        """Begin to wait for other ranks: until `leave_out`, or else until the phase ends."""

    def waiting_stays(self) -> None:
        """Note that phases hold waiting that cannot be left out: no reading has `collective_seconds`."""

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        """Seconds per step of each phase, over the steps since the last reading; None where none marked it.

        With each of PARTS that was marked, and with `collective_seconds` where something was left out. A
        record takes the numbers that a GPU has still to deliver as they are.
        """


def open_phases(device: TorchDevice) -> Phases:
    """Return phases by the CPU's clock; on a GPU by its own, without waiting for it."""
    if device.type == "cuda":
        return DevicePhases(device)
    return HostPhases()


class HostPhases:
    """Phases by the clock of this process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._steps = 0
        self._mark = 0.0
        self._own = 0.0
        """Seconds of the phase that the next `end` names."""
        self._is_step = self._is_waiting = self._waiting_stays = False

    def begin(self) -> None:
        self._mark, self._own = time.perf_counter(), 0.0
        self._is_step, self._is_waiting = True, False

    def end(self, phase: str) -> None:
        if self._is_waiting:
            self.leave_out()
        self._add(phase, self._own + self._passed())
        self._own = 0.0
        if phase == _STEP_ENDS:
            self._steps += 1
            self._is_step = False

    def leave_out(self) -> None:
        if self._is_step:  # an evaluation waits too, and belongs to no step
            self._add(COLLECTIVE, self._passed())
            self._is_waiting = False

    def own_work_done(self) -> None:
        if self._is_step:
            self._own += self._passed()
            self._is_waiting = True

    def waiting_stays(self) -> None:
        self._waiting_stays = True

    def read(self) -> Mapping[str, float | None]:
        seconds, steps = self._seconds, self._steps
        self._seconds, self._steps = {}, 0
        found: dict[str, float | None] = {}
        for name in _read(seconds, self._waiting_stays):
            marked = [seconds[part] for part in _parts(name) if part in seconds]
            found[name] = sum(marked) / steps if steps and marked else None
        return found

    def _passed(self) -> float:
        """Return seconds since the last call."""
        now = time.perf_counter()
        passed, self._mark = now - self._mark, now
        return passed

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds


class DevicePhases:
    """Phases by events in the GPU's work. A reading never waits: its numbers arrive with its last step."""

    def __init__(self, device: Any, pool: DevicePool = POOL) -> None:
        self._device, self._pool = device, pool
        self._line = pool.line(device, timing=True)
        self._step: _Marks = []
        self._steps = _Steps()
        self._is_waiting = self._waiting_stays = False

    def begin(self) -> None:
        """The step's events are recorded in the stream that is current now."""
        self._line = self._pool.line(self._device, timing=True)
        self._step = [("", self._line.recorded())]
        self._is_waiting = False

    def end(self, phase: str) -> None:
        # own work up to a wait belongs to the phase whose name is known only now
        self._step = [(phase if name == _OWN_WORK else name, event) for name, event in self._step]
        self._step.append((COLLECTIVE if self._is_waiting else phase, self._line.recorded()))
        self._is_waiting = False
        if phase == _STEP_ENDS:
            self._steps.add(self._step, self._line)
            self._step = []

    def leave_out(self) -> None:
        if self._step:  # an evaluation waits too, and belongs to no step
            self._step.append((COLLECTIVE, self._line.recorded()))
            self._is_waiting = False

    def own_work_done(self) -> None:
        if self._step:
            self._step.append((_OWN_WORK, self._line.recorded()))
            self._is_waiting = True

    def waiting_stays(self) -> None:
        self._waiting_stays = True

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        steps, self._steps = self._steps, _Steps()
        marked = steps.marked()
        return {
            phase: DeviceScalar(steps.arrived, partial(steps.mean, phase))
            if not marked.isdisjoint(_parts(phase))
            else None
            for phase in _read(marked, self._waiting_stays)
        }


def watch_ddp(model: Any, phases: Phases, hook: Callable[[Any, Any], Any] | None = None) -> None:
    """Have the phases of a DistributedDataParallel leave out its waiting; call it before the first backward.

    The model averages gradients by `hook`, a communication hook whose state is the process group, by default
    as it does by itself (torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook). What
    passes from the end of this rank's own backward until all gradients are averaged is waiting: the averaging
    itself and slower ranks. So is what passes before a forward pass while buffers, as those of batch norm,
    come from rank 0. RuntimeError if the model has a communication hook, of which there can be one.
    """
    average = _average if hook is None else hook

    def averaged(group: Any, bucket: Any) -> Any:
        if bucket.is_last():
            # called in this order when all of backward is done: ours, DDP's wait for its averages, ours
            _after_backward(own_work_done)
        return average(group, bucket)

    def own_work_done() -> None:
        phases.own_work_done()
        _after_backward(phases.leave_out)

    # torch checks the names that an annotation has by its types, and these are texts here
    averaged.__annotations__ = {}
    model.register_comm_hook(model.process_group, averaged)
    _leave_out_buffers(model, phases)


def _after_backward(call: Callable[[], None]) -> None:
    """Queue a call in a backward, after it and calls queued before; torch has no public name for that.

    Does nothing outside of one, where a rank that has joined (model.join) averages along with others.
    """
    with suppress(RuntimeError):
        sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(call)


def _leave_out_buffers(model: Any, phases: Phases) -> None:
    """Leave out the time in which buffers come from rank 0.

    Hooks around a forward pass would also leave out the copies of its inputs to a GPU.
    """
    send = getattr(model, "_sync_buffers", None)
    if send is None:  # a torch that calls it otherwise
        phases.waiting_stays()
        return

    def sent() -> None:
        phases.own_work_done()
        send()
        phases.leave_out()

    # private to DistributedDataParallel (torch/nn/parallel/distributed.py), called before a forward pass
    model._sync_buffers = sent


def _average(group: Any, bucket: Any) -> Any:
    """Average as allreduce_hook of torch.distributed.algorithms.ddp_comm_hooks.default_hooks does."""
    distributed = sys.modules["torch"].distributed  # the model is torch's, so it is there
    summed = distributed.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
    return summed.get_future().then(lambda done: done.value()[0])


def _read(marked: Container[str], waiting_stays: bool) -> tuple[str, ...]:
    optional = PARTS if waiting_stays else (*PARTS, COLLECTIVE)
    return (*PHASES, *(name for name in optional if name in marked))


def _parts(name: str) -> tuple[str, ...]:
    """Return the marked phases that a reading's number is the sum of."""
    return (name, *PARTS) if name == PHASES[1] else (name,)


class _Steps:
    """The steps of one reading, of which the GPU has still to do some."""

    def __init__(self) -> None:
        self._in_flight: deque[tuple[_Marks, EventLine]] = deque()
        self._milliseconds: dict[str, float] = {}
        self._num_steps = 0

    def add(self, marks: _Marks, line: EventLine) -> None:
        self._in_flight.append((marks, line))
        self._num_steps += 1
        if len(self._in_flight) > MAX_IN_FLIGHT:
            self._take_passed()

    def marked(self) -> set[str]:
        """Return the phases that steps have ended; the first mark of a step ends none."""
        return {*self._milliseconds, *(phase for marks, _ in self._in_flight for phase, _ in marks[1:])}

    def arrived(self) -> bool:
        if self._in_flight:
            try:
                self._take_passed()
            except RuntimeError:  # the device failed; `mean` says so
                return True
        return not self._in_flight

    def mean(self, phase: str) -> float:
        """Return seconds per step, waiting for the last one."""
        if self._in_flight:
            self._in_flight[-1][0][-1][1].synchronize()
            self._take_passed()
        found = sum(self._milliseconds.get(part, 0.0) for part in _parts(phase))
        return found / (1000 * self._num_steps)

    def _take_passed(self) -> None:
        sums = self._milliseconds
        # a stream runs in order: once a step's last event has passed, all of its events have
        while self._in_flight and self._in_flight[0][0][-1][1].query():
            marks, line = self._in_flight[0]
            for (_, begin), (phase, end) in pairwise(marks):
                if phase:
                    sums[phase] = sums.get(phase, 0.0) + begin.elapsed_time(end)
            # nothing else holds them any more (see EventLine)
            line.free.extend([event for _, event in marks])
            self._in_flight.popleft()
