"""A Sampler in a process of its own (see sampler_server), and what follows when that process dies."""

from __future__ import annotations

import contextlib
import mmap
import os
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
from monitoring.gpu.driver_calls import NOTE_BYTES, last_call
from monitoring.gpu.masks import Mask, with_others
from monitoring.gpu.sample import DeviceInfo, GpuEvent, GpuSample, Sampler
from monitoring.host.backoff import STEADY_SECONDS, Backoff

if TYPE_CHECKING:
    from monitoring.journal.alerts import Severity

COMMAND = (sys.executable, "-P", "-m", "monitoring.sampling.server")

# Deaths in a row, each before its steady minute is over, after which a call of the driver is left out.
QUICK_DEATHS = 2

# Seconds between looks at an idle process.
LOOK_EVERY = 1.0

# Seconds that a process which was killed may take to be gone; the kernel keeps one that is inside a driver.
LONGEST_END = 2.0

# Signals that somebody sends, a person or the kernel for want of memory; any other a driver has raised.
SENT = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGQUIT, signal.SIGTERM})


class SamplerDied(SamplerError):
    """The process of a sampler ended by itself."""

    def __init__(self, status: int | None, call: str | None) -> None:
        """`status` is an exit code, negative for a signal, None if unknown; `call` is what it was in."""
        self.signal = _signal_name(-status) if status is not None and status < 0 else None
        self.is_own = status is not None and -status not in SENT
        """Whether it, or the driver in it, did that."""
        self.call = call if self.is_own else None
        how = f"was killed by {self.signal}" if self.signal else "ended"
        if status is not None and status >= 0:
            how = f"exited with code {status}"
        super().__init__(f"GPU sampling {how}" + (f" in {self.call}" if self.call else ""))


class SamplerProcess:
    """The GPUs of this machine, sampled by a child; one thread calls `open` and what a Sampler has.

    The child ends with that thread. Every method but `kill` raises SamplerDied when the child has ended.
    """

    def __init__(
        self, root: Path = Path("/"), *, left_out: Sequence[str] = (), masks: Sequence[Mask] = ()
    ) -> None:
        """Start it, without the calls of drivers in `left_out`; OSError if the system does not let it.

        GPUs of `masks` are sampled beside those that this process may use.
        """
        self.vendor, self.num_devices = "", 0
        self._devices: list[DeviceInfo] = []
        self._events: list[GpuEvent] = []
        self._status: int | None = None
        self._is_gone = False
        self._lock = threading.Lock()  # whoever collects the child; its id is then free for another
        page = _shared_file()
        ours, theirs = socket.socketpair()
        try:
            self._page = mmap.mmap(page, NOTE_BYTES)
            self._pid = os.posix_spawn(
                sys.executable,
                [*COMMAND, str(root), str(os.getpid()), *left_out],
                {**os.environ, **with_others(masks)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),
                    (os.POSIX_SPAWN_DUP2, page, 3),
                ],
                setsid=True,
                setsigmask=(),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(page)
            theirs.close()
        self._socket, self._answers = ours, ours.makefile("rb")

    def open(self) -> tuple[Sampler | None, list[str]]:
        """This, or None if there are no GPUs; and what was in the way. Waits for the drivers."""
        found = self._answer()
        if found["devices"] is None:
            return None, found["problems"]
        self._devices = [DeviceInfo(*device) for device in found["devices"]]
        self.vendor, self.num_devices = found["vendor"], found["num_devices"]
        return self, found["problems"]

    def devices(self) -> Sequence[DeviceInfo]:
        return self._devices

    def sample(self) -> Sequence[GpuSample]:
        """One look; what happened meanwhile comes along, for `events`. SamplerError if it failed."""
        with contextlib.suppress(OSError):  # it is gone, as the answer will say
            self._socket.sendall(b"sample\n")
        answer = self._answer()
        if "error" in answer:
            raise SamplerError(answer["error"])
        self._events += [GpuEvent(*event) for event in answer["events"]]
        return [GpuSample(*sample) for sample in answer["samples"]]

    def events(self) -> Sequence[GpuEvent]:
        events, self._events = self._events, []
        return events

    def wait(self, ending: threading.Event, seconds: float) -> None:
        """Wait for the next sample to be due, or for `ending`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not ending.wait(min(left, LOOK_EVERY)):
            try:
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
        self._answers.close()
        self._socket.close()

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise self._died()
        found: dict[str, Any] = orjson.loads(line)
        return found

    def _died(self) -> SamplerDied:
        if not self._wait_for_end():  # it has only let go of the socket
            self.kill()
            self._wait_for_end()
        return SamplerDied(self._status, last_call(self._page))

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
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has collected it
                self._is_gone = True
            else:
                self._is_gone = pid != 0
                self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._is_gone


@dataclass(frozen=True)
class Restart:
    """What follows a failure."""

    message: str
    severity: Severity
    delay: float | None
    """Seconds until sampling begins again, None if it does not."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The signal and the call of a death, for an alert."""


class Restarts:
    """When sampling that failed begins again, and without which calls of the driver."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        """What SamplerProcess is to leave out."""
        self._began = 0.0
        self._backoff = Backoff()
        self._quick_deaths = 0

    def begin(self) -> None:
        """A process is about to be started."""
        self._began = time.monotonic()

    def after(self, error: Exception) -> Restart:
        """What to do about a failure of the process that was begun last."""
        lived = time.monotonic() - self._began
        delay = self._backoff.failed(lived=lived)
        if lived > STEADY_SECONDS:
            self._quick_deaths = 0
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
        self.left_out.append(error.call)
        self._quick_deaths = 0
        return Restart(f"{error}; restarting in {delay:g} s without that call", "error", delay, facts)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _shared_file() -> int:
    """A file of NOTE_BYTES zeros without a name."""
    if sys.platform == "linux":
        fd = os.memfd_create("driver calls")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, NOTE_BYTES)
    return fd
