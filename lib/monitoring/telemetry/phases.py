"""How long the steps of a training wait for data, go forward and backward, and update the weights.

A rank that waits for others is as busy as they are; its own work, without collectives, shows who is slow
(monitoring.telemetry.load_balance). So a loop marks the end of each phase, and leaves out what passes in
collectives: by `leave_out`, or with DistributedDataParallel, which waits within backward, by `watch_ddp`.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from monitoring.telemetry.device_pool import (
    POOL,
    DevicePool,
    DeviceScalar,
    Event,
    EventLine,
    TorchDevice,
)

# In the order of a step; the names are those of step records, in seconds per step.
PHASES = ("data_seconds", "forward_backward_seconds", "optimizer_seconds")

PARTS = ("forward_seconds", "backward_seconds")
"""A step may end these two in the place of the second phase, which is then both together."""

# Steps of a reading whose events are kept without a look whether they have passed.
MAX_IN_FLIGHT = 64

COLLECTIVE = "collective_seconds"
"""What was left out, in seconds a step: without it nobody knows whether a phase holds waiting."""

# Of a mark whose phase the next `end` names.
_OWN_WORK = "own work"

_Marks = list[tuple[str, Event]]
"""Of one step, each with the phase that it ends; "" for none."""


class Phases(Protocol):
    """A step calls `begin`, then `end` with each of PHASES in their order, and `leave_out` where it waits."""

    def begin(self) -> None: ...

    def end(self, phase: str) -> None: ...

    def leave_out(self) -> None:
        """What has passed since the last call counts in no phase, such as a collective."""

    def own_work_done(self) -> None:
        """What passes from now until the phase ends is waiting for other ranks."""

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        """Seconds per step of each phase, over the steps since the last reading; None where none marked it.

        With each of PARTS that was marked, and with `collective_seconds` where something was left out. A
        record takes the numbers that a GPU has still to deliver as they are.
        """


def open_phases(device: TorchDevice) -> Phases:
    """Of the CPU's clock; on a GPU of the GPU's own, without waiting for it."""
    if device.type == "cuda":
        return DevicePhases(device)
    return HostPhases()


class HostPhases:
    """By the clock of this process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._steps = 0
        self._mark = 0.0
        self._own_work_done: float | None = None

    def begin(self) -> None:
        self._mark = time.perf_counter()
        self._own_work_done = None

    def end(self, phase: str) -> None:
        if self._own_work_done is None:
            self._add(phase, time.perf_counter())
        else:
            self._add(phase, self._own_work_done)
            self._own_work_done = None
            self.leave_out()
        if phase == PHASES[-1]:
            self._steps += 1

    def leave_out(self) -> None:
        self._add(COLLECTIVE, time.perf_counter())

    def own_work_done(self) -> None:
        self._own_work_done = time.perf_counter()

    def read(self) -> Mapping[str, float | None]:
        seconds, steps = self._seconds, self._steps
        self._seconds, self._steps = {}, 0
        found: dict[str, float | None] = {}
        for name in _read(seconds):
            marked = [seconds[part] for part in _parts(name) if part in seconds]
            found[name] = sum(marked) / steps if steps and marked else None
        return found

    def _add(self, phase: str, now: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._mark
        self._mark = now


class DevicePhases:
    """By events in the GPU's work. A reading never waits: it has numbers that arrive with its last step."""

    def __init__(self, device: Any, pool: DevicePool = POOL) -> None:
        self._device, self._pool = device, pool
        self._line = pool.line(device, timing=True)
        self._step: _Marks = []
        self._steps = _Steps()

    def begin(self) -> None:
        """The step's events are recorded in the stream that is current now."""
        self._line = self._pool.line(self._device, timing=True)
        self._step = [("", self._line.recorded())]

    def end(self, phase: str) -> None:
        if self._step and self._step[-1][0] == _OWN_WORK:
            self._step[-1] = phase, self._step[-1][1]
            self.leave_out()
        else:
            self._step.append((phase, self._line.recorded()))
        if phase == PHASES[-1]:
            self._steps.add(self._step, self._line)
            self._step = []

    def leave_out(self) -> None:
        self._step.append((COLLECTIVE, self._line.recorded()))

    def own_work_done(self) -> None:
        self._step.append((_OWN_WORK, self._line.recorded()))

    def read(self) -> Mapping[str, float | DeviceScalar | None]:
        steps, self._steps = self._steps, _Steps()
        marked = steps.marked()
        return {
            phase: DeviceScalar(steps.arrived, partial(steps.mean, phase))
            if not marked.isdisjoint(_parts(phase))
            else None
            for phase in _read(marked)
        }


def watch_ddp(model: Any, phases: Phases, hook: Callable[[Any, Any], Any] | None = None) -> None:
    """Have the phases of a DistributedDataParallel leave out its waiting; call it before the first backward.

    The model averages gradients by `hook`, a communication hook whose state is the process group, by default
    as it does by itself (torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook). What
    passes in backward after this rank's last gradients are there is waiting: the averaging itself and slower
    ranks. So is what passes before a forward pass where buffers, as those of batch norm, come from rank 0.
    RuntimeError if the model has a communication hook, of which there can be one.
    """
    average = _average if hook is None else hook

    def averaged(group: Any, bucket: Any) -> Any:
        if bucket.is_last():
            phases.own_work_done()
        return average(group, bucket)

    # torch checks the names that an annotation has by its types, and these are texts here
    averaged.__annotations__ = {}
    model.register_comm_hook(model.process_group, averaged)
    if any(True for _ in model.module.buffers()):
        _leave_out_buffers(model, phases)


def _leave_out_buffers(model: Any, phases: Phases) -> None:
    """The model sends buffers between these two hooks, of which the second also sees calls of its own."""
    is_sending = False

    def begin(module: Any, inputs: Any) -> None:
        nonlocal is_sending
        is_sending = bool(module.training)  # an evaluation belongs to no step

    def end(module: Any, inputs: Any) -> None:
        nonlocal is_sending
        if is_sending:
            phases.leave_out()
        is_sending = False

    model.register_forward_pre_hook(begin)
    model.module.register_forward_pre_hook(end)


def _average(group: Any, bucket: Any) -> Any:
    """As allreduce_hook of torch.distributed.algorithms.ddp_comm_hooks.default_hooks does."""
    distributed = sys.modules["torch"].distributed  # the model is torch's, so it is there
    summed = distributed.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
    return summed.get_future().then(lambda done: done.value()[0])


def _read(marked: Container[str]) -> tuple[str, ...]:
    return (*PHASES, *(name for name in (*PARTS, COLLECTIVE) if name in marked))


def _parts(name: str) -> tuple[str, ...]:
    """What a reading's number is the sum of."""
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
        """The phases that steps have ended; the first mark of a step ends none."""
        return {*self._milliseconds, *(phase for marks, _ in self._in_flight for phase, _ in marks[1:])}

    def arrived(self) -> bool:
        if self._in_flight:
            try:
                self._take_passed()
            except RuntimeError:  # the device failed; `mean` says so
                return True
        return not self._in_flight

    def mean(self, phase: str) -> float:
        """Seconds a step, waiting for the last one."""
        if self._in_flight:
            self._in_flight[-1][0][-1][1].synchronize()
            self._take_passed()
        found = sum(self._milliseconds.get(part, 0.0) for part in _parts(phase))
        return found / (1000 * self._num_steps)

    def _take_passed(self) -> None:
        sums = self._milliseconds
        while self._in_flight and self._in_flight[0][0][-1][1].query():
            marks, line = self._in_flight[0]
            for (_, begin), (phase, end) in pairwise(marks):
                if phase:
                    sums[phase] = sums.get(phase, 0.0) + begin.elapsed_time(end)
            line.free.extend([event for _, event in marks])
            self._in_flight.popleft()
