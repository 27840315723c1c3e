"""Ends what a killed bridge has started: a process that waits for the bridge's end, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal


class Guard:
    """A forked process; started before anything else of the bridge's is open.

    The kernel itself ends the program, when its parent dies; the guard ends what that has started.
    """

    def __init__(self) -> None:
        ours, self._to = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _guard(ours, self._to)
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


def _guard(ours: int, theirs: int) -> None:
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
            os.killpg(int(group), signal.SIGKILL)
    finally:
        os._exit(0)
