"""Ends what a killed bridge has started: a process that waits for the bridge's end, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

MARK = "MONITORING_BRIDGE"
"""Environment variable: by its value a process is known as started by one bridge, whatever its session is."""

# How often what a killed bridge has left behind is looked for, at 0.05 seconds between.
MOST_LOOKS = 100


class Guard:
    """A forked process; started before anything else of the bridge's is open.

    The kernel itself ends the program, when its parent dies; the guard ends what that has started.
    """

    def __init__(self) -> None:
        self.mark = os.urandom(8).hex()
        """The value of MARK that the program is to have."""
        ours, self._to = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _guard(ours, self._to, self.mark)
        os.close(ours)

    def watch_this_process(self) -> None:
        """Have the calling process's group end with the bridge; for the program's own, before it is executed.

        It says so itself: a bridge that is killed right after the fork has not said it yet, and what the
        program had started by then would live on.
        """
        os.write(self._to, b"%d\n" % os.getpgrp())

    def dismiss(self) -> None:
        """End the guard; the group is left as it is."""
        with contextlib.suppress(OSError):
            os.write(self._to, b"0\n")
        os.close(self._to)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def marked(mark: str) -> Sequence[int]:
    """Return the ids of the processes that have this value of MARK; none where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    variable = f"{MARK}={mark}".encode()
    return [int(name) for name in names if name.isdecimal() and variable in variables(int(name))]


def variables(process_id: int) -> Sequence[bytes]:
    """Return the environment of a process as `NAME=value`; empty where it cannot be read."""
    try:
        opened = os.open(f"/proc/{process_id}/environ", os.O_RDONLY)
    except OSError:
        return ()
    try:
        return b"".join(iter(lambda: os.read(opened, 1 << 16), b"")).split(b"\0")
    except OSError:
        return ()
    finally:
        os.close(opened)


def _guard(ours: int, theirs: int, mark: str) -> None:
    """Read groups until the bridge is gone; the last one counts, 0 is none. Never returns."""
    try:
        os.setsid()  # no signal that a terminal sends to the bridge's group
        os.close(theirs)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        group = b""
        with open(ours, "rb") as lines:
            for line in lines:
                group = line
        if int(group or b"0"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group), signal.SIGKILL)
            # again, for one may just start another; not for ever, for one may hang in a driver's call
            for _ in range(MOST_LOOKS):
                if not (left := marked(mark)):
                    break
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
    finally:
        os._exit(0)
