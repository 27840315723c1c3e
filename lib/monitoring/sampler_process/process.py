"""A Sampler in a process of its own (see server), and when that is restarted after it died or hung."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from monitoring.errors import SamplerError
from monitoring.gpu.driver_calls import NOTE_BYTES, DriverCall, last_call
from monitoring.gpu.masks import Mask, with_others
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample, Sampler
from monitoring.host.backoff import STEADY_SECONDS, Backoff
from monitoring.host.process import reaped, spawned

if TYPE_CHECKING:
    from monitoring.journal.alerts import Severity

SERVER = "monitoring.sampler_process.server"

# Deaths in a row, each before its steady minute is over, after which a call of the driver is left out; and so
# many calls in a row that did not return.
QUICK_DEATHS = 2

# Seconds within which the drivers have to answer: a sample takes them milliseconds, while GPUs that sleep may
# take a second or two each to be opened. A process that takes longer is killed.
SAMPLE_SECONDS = 5.0
OPEN_SECONDS = 30.0

# Without these there is nothing to sample, so they are never left out.
NEEDED = frozenset({"nvmlInit", "nvmlDeviceGetCount"})

# Seconds between looks at an idle process.
LOOK_EVERY = 1.0

# Seconds that a process which was killed may take to be gone; the kernel keeps one that is inside a driver.
LONGEST_END = 2.0

# Signals that are sent, by a person or by the kernel out of memory; any other one a driver has raised.
SENT = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGQUIT, signal.SIGTERM})


class SamplerDied(SamplerError):
    """The process of a sampler ended by itself."""

    def __init__(self, status: int | None, call: str | None) -> None:
        """`status` is an exit code, negative for a signal, None if unknown; `call` is what it was in."""
        self.signal = _signal_name(-status) if status is not None and status < 0 else None
        self.is_own = status is not None and -status not in SENT
        """Whether the process, or a driver in it, ended itself."""
        self.call = call if self.is_own else None
        how = f"was killed by {self.signal}" if self.signal else "ended"
        if status is not None and status >= 0:
            how = f"exited with code {status}"
        super().__init__(f"GPU sampling {how}" + (f" in {self.call}" if self.call else ""))


class SamplerHangs(SamplerError):
    """The process of a sampler does not answer."""

    def __init__(self, seconds: float, call: DriverCall | None) -> None:
        """`seconds` is the time that it was given, `call` the one that it is in."""
        self.seconds, self.call = seconds, call
        where = f" in {call.name}" if call is not None else ""
        of = f" of GPU {call.gpu}" if call is not None and call.gpu is not None else ""
        super().__init__(f"GPU sampling has hung{where}{of} for {seconds:g} s and was killed")


class SamplerProcess:
    """The GPUs of this machine, sampled by a child; one thread calls `open` and what a Sampler has.

    The child ends with that thread. Every method but `kill` raises SamplerDied when the child has ended, and
    SamplerHangs, after killing it, when it does not answer in time.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        left_out: Sequence[DriverCall] = (),
        masks: Sequence[Mask] = (),
        simulated: int = 0,
    ) -> None:
        """Start it, without the calls of drivers in `left_out`; OSError if the system does not let it.

        GPUs of `masks` are sampled beside those that this process may use; `simulated` ones, which do not
        exist, in place of all that do.
        """
        self.vendor, self.num_devices = "", 0
        self.may_come = False
        """Whether a driver or GPUs that `open` did not find may still come."""
        self._devices: list[DeviceInfo] = []
        self._events: list[GpuEvent] = []
        self._status: int | None = None
        self._is_gone = False
        self._lock = threading.Lock()  # of collecting the child: its id is then free for another process
        page = _shared_file()
        ours, theirs = socket.socketpair()
        try:
            self._page = mmap.mmap(page, NOTE_BYTES)
            self._pid = spawned(
                [SERVER, str(root), str(os.getpid()), str(simulated), *map(str, left_out)],
                # Standard input is the socket, and what a driver prints goes where our errors go: in the
                # socket it would be an answer.
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, 2, 1),
                (os.POSIX_SPAWN_DUP2, page, 3),
                environment=os.environ | with_others(masks),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(page)
            theirs.close()
        self._socket, self._received = ours, b""
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)

    def open(self) -> tuple[Sampler | None, list[str]]:
        """Return this, or None without GPUs, and the problems met. Waits for the drivers."""
        found = self._answer(OPEN_SECONDS)
        if found["devices"] is None:
            self.may_come = found["may_come"]
            return None, found["problems"]
        self._devices = [DeviceInfo(*device) for device in found["devices"]]
        self.vendor, self.num_devices = found["vendor"], found["num_devices"]
        return self, found["problems"]

    def devices(self) -> Sequence[DeviceInfo]:
        return self._devices

    def sample(self) -> Sequence[GpuSample]:
        """Return one look; what happened meanwhile comes along, for `events`. SamplerError if it failed."""
        with contextlib.suppress(OSError):  # it is gone, as the answer will say
            self._socket.sendall(b"sample\n")
        answer = self._answer(SAMPLE_SECONDS)
        if "error" in answer:
            raise SamplerError(answer["error"])
        self._events += [GpuEvent(*event) for event in answer["events"]]
        return list(map(GpuSample._make, answer["samples"]))

    def events(self) -> Sequence[GpuEvent]:
        events, self._events = self._events, []
        return events

    def wait(self, ending: threading.Event, seconds: float) -> None:
        """Wait for the next sample to be due, or for `ending`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not ending.wait(min(left, LOOK_EVERY)):
            try:
                # a look at what waits: nothing of an answer is taken, and an end is that of the child
                is_gone = not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                is_gone = True
            if is_gone:
                raise self._died()

    def kill(self) -> None:
        """End the child at once; any thread may, and a call that waits for it then raises."""
        with self._lock:
            if not self._collected():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the child: whatever a driver keeps for a process ends with it."""
        self.kill()
        self._wait_for_end()
        self._socket.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        left = seconds
        while b"\n" not in self._received:
            # in several looks: one that this process slept through, stopped or frozen, is one that it missed
            if left <= 0:
                raise self._hangs(seconds)
            if not self._poll.poll(1000 * min(LOOK_EVERY, left)):
                left -= LOOK_EVERY
                continue
            try:
                chunk = self._socket.recv(2**16)
            except OSError:
                chunk = b""
            if not chunk:
                raise self._died()
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        found: dict[str, Any] = orjson.loads(line)
        return found

    def _hangs(self, seconds: float) -> SamplerHangs:
        call = last_call(self._page, waits=False)
        self.kill()
        return SamplerHangs(seconds, call)

    def _died(self) -> SamplerDied:
        if not self._wait_for_end():  # it has only let go of the socket
            self.kill()
            self._wait_for_end()
        call = last_call(self._page)
        return SamplerDied(self._status, None if call is None else call.name)

    def _wait_for_end(self) -> bool:
        """Whether the child is gone, which may take LONGEST_END."""
        deadline = time.monotonic() + LONGEST_END
        while True:
            with self._lock:
                if self._collected() or time.monotonic() > deadline:
                    return self._is_gone
            time.sleep(0.005)

    def _collected(self) -> bool:
        if not self._is_gone:
            try:
                self._status = reaped(self._pid)
                self._is_gone = self._status is not None
            except ChildProcessError:  # by other code of this process
                self._is_gone = True
        return self._is_gone


@dataclass(frozen=True)
class Restart:
    """The consequence of a failure: a message, and when sampling begins again."""

    message: str
    severity: Severity
    delay: float | None
    """Seconds until sampling begins again, None if it does not."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The signal and the call of a death, for an alert."""


class Restarts:
    """When sampling that failed begins again, and without which calls of the driver."""

    def __init__(self) -> None:
        self.left_out: list[DriverCall] = []
        """Calls that SamplerProcess is to leave out."""
        self._began = 0.0
        self._backoff = Backoff()
        self._quick_deaths = 0
        self._hung: list[DriverCall] = []

    def begin(self) -> None:
        """A process is about to be started."""
        self._began = time.monotonic()

    def after(self, error: Exception) -> Restart:
        """Return how to react to a failure of the newest child."""
        lived = time.monotonic() - self._began
        delay = self._backoff.failed(lived=lived)
        if lived > STEADY_SECONDS:
            self._quick_deaths = 0
            self._hung.clear()
        if isinstance(error, SamplerHangs):
            # the time it hung was a pause already
            return self._after_hanging(error, max(0.0, delay - error.seconds))
        if not isinstance(error, SamplerDied):
            kind = "" if isinstance(error, SamplerError) else f"{type(error).__name__}: "
            return Restart(f"GPUs cannot be sampled: {kind}{error}; it is tried again", "warning", delay)
        facts: dict[str, Any] = {"signal": error.signal, "call": error.call}
        self._quick_deaths += error.is_own
        if self._quick_deaths < QUICK_DEATHS:
            return Restart(f"{error}; restarting in {delay:g} s", "warning", delay, facts)
        if error.call is None:
            message = f"{error}, {self._quick_deaths} times in a row; GPUs are no longer sampled"
            return Restart(message, "error", None, facts)
        self.left_out.append(DriverCall(error.call))
        self._quick_deaths = 0
        return Restart(f"{error}; restarting in {delay:g} s without that call", "error", delay, facts)

    def _after_hanging(self, error: SamplerHangs, delay: float) -> Restart:
        """Return the same for a hang; a driver mostly hangs for one GPU, so that the others keep the call."""
        when = f"restarting in {delay:g} s" if delay else "restarting"
        facts: dict[str, Any] = {"signal": None, "call": None if error.call is None else error.call.name}
        if error.call is None or error.call.name in NEEDED:
            return Restart(f"{error}; {when}", "warning", delay, facts)
        self._hung.append(error.call)
        if len(self._hung) < QUICK_DEATHS:
            return Restart(f"{error}; {when}", "warning", delay, facts)
        spared = self._spared(*self._hung)
        self._hung.clear()
        self.left_out.append(spared)
        what = "that call" if spared.gpu is None else f"that call for GPU {spared.gpu}"
        return Restart(
            f"{error}; {when} without {what if spared.name else f'GPU {spared.gpu}'}", "error", delay, facts
        )

    def _spared(self, first: DriverCall, second: DriverCall) -> DriverCall:
        """Return the call to leave out after two that did not return: of one GPU, of all, or all of a GPU."""
        if first.name == second.name and first.gpu != second.gpu:
            return DriverCall(second.name)
        others = [call for call in (first, *self.left_out) if call.gpu == second.gpu and call != second]
        if second.gpu is not None and others:
            return DriverCall("", second.gpu)
        return second


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _shared_file() -> int:
    """Return a file of NOTE_BYTES zeros without a name."""
    if sys.platform == "linux":
        fd = os.memfd_create("driver calls")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, NOTE_BYTES)
    return fd
