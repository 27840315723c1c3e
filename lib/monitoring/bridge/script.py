"""The program that the bridge runs: its process, its output, its signals, its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from monitoring.bridge.guard import MARK, Guard, marked
from monitoring.errors import UserError
from monitoring.host.libc import ending_with
from monitoring.host.stop_signals import StopRequests

# Signals that are passed on. SIGINT goes to the whole group, as from a terminal; the others to the program.
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Seconds that processes which the program has left behind may take after SIGTERM.
LEAVE = 5.0


class CommandNotFoundError(UserError):
    """The command cannot be started."""


class Script:
    """A running program, in a session of its own."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        output: int,
        guard: Guard,
    ) -> None:
        """Start it with its output in an open file. CommandNotFoundError if that cannot be."""
        with _held() as mask:
            self._process = _started(command, environment, cwd, output, guard, mask)
            self.group = self._process.pid
            self._mark = guard.mark
            self._is_alone = False
            self.stopped_by: int | None = None
            """The first signal that asked it to stop."""
            self._requests = StopRequests()
            # Readable once it has ended (pidfd_open(2)): a wait with a limit that leaves its exit status in
            # place.
            self._ended = os.pidfd_open(self._process.pid)
            for number in PASSED:
                signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number in STOPS:
            if not self._requests.is_new(number):
                return
            self.stopped_by = self.stopped_by or number
        with contextlib.suppress(ProcessLookupError):
            # As a terminal does it: Ctrl-C to all of the group, another signal to the program alone, which
            # ends its own.
            if number == signal.SIGINT:
                os.killpg(self.group, number)
            else:
                os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it ends; whether it has."""
        return bool(select.select([self._ended], [], [], seconds)[0])

    def exit_code(self) -> int:
        """Collect it; below 0 is the signal that has ended it."""
        return self._process.wait()

    def end_rest(self) -> bool:
        """End what it has left behind, in its group or a session of its own; whether there was anything."""
        if not self.has_rest():
            return False
        until = time.monotonic() + LEAVE
        self._signal_rest(signal.SIGTERM)
        while self.has_rest():
            if time.monotonic() > until:
                self._signal_rest(signal.SIGKILL)
                break
            time.sleep(0.05)
        return True

    def has_rest(self) -> bool:
        """Whether anything that it has started still runs; to be asked once it has ended itself."""
        if self._is_alone:
            return False
        try:
            os.killpg(self.group, 0)
        except (ProcessLookupError, PermissionError):
            # once there is none, nothing can start another
            self._is_alone = not marked(self._mark)
        return not self._is_alone

    def _signal_rest(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)
        for pid in marked(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != self.group:  # a second request to stop is one to stop at once
                    os.kill(pid, number)


@contextlib.contextmanager
def _held() -> Iterator[Collection[int]]:
    """Have signals wait until there is a program that gets them; gives those that waited before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    output: int,
    guard: Guard,
    mask: Collection[int],
) -> subprocess.Popen[bytes]:
    end_with_this = ending_with(os.getpid())

    def before_it_is_executed() -> None:
        guard.watch_this_process()
        end_with_this()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            command,
            env={**environment, MARK: guard.mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A terminal's Ctrl-C goes to the whole group in its foreground: the program gets it from us, and
            # once.
            start_new_session=True,
            preexec_fn=before_it_is_executed,
        )
    except OSError as error:
        raise CommandNotFoundError(
            f"{command[0]} cannot be started: {error.strerror}",
            hint="give the command as you would type it in this folder",
        ) from error
