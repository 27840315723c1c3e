"""Everything that monitoring raises for a reader to mend.

MonitoringError
    RunDirectoryError    the run directory cannot be made, written or understood
    RunBusyError         another process writes or follows this run
    UnknownFollower      no tracker or exporter of that name
    FollowerOptionsError an option that the follower does not have, or a value it refuses
    MissingPackage       the package of a follower or of a GPU sampler is not installed
    SamplerError         a driver is there and its GPUs cannot be sampled
    PortTakenError       an exporter cannot listen where it was told to
    NoTerminal           the dashboard has nothing to paint on
"""

from __future__ import annotations

import errno
from pathlib import Path

# sysexits.h EX_IOERR: a disk, or somebody's share of it, is full.
EXIT_DISK_FULL = 74


class MonitoringError(Exception):
    """One sentence for the user, and in `hint` the next thing to try; commands exit with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class RunDirectoryError(MonitoringError):
    """The run directory cannot be made, written or understood."""


class RunBusyError(MonitoringError):
    """Another process writes or follows this run."""


class UnknownFollower(MonitoringError):
    """No tracker or exporter has this name."""


class FollowerOptionsError(MonitoringError):
    """The follower has no such option, or refuses its value."""


class MissingPackage(MonitoringError):
    """The package that a follower writes with, or that a sampler reads with, is not installed."""


class SamplerError(MonitoringError):
    """A GPU driver is there, and its GPUs cannot be sampled."""


class PortTakenError(MonitoringError):
    """An exporter cannot listen at the address it was given."""


class NoTerminal(MonitoringError):
    """Nobody would see the dashboard where it is to be painted."""


def unwritable(path: Path, error: OSError) -> RunDirectoryError:
    """The error for a path that the system does not let us write."""
    full = is_full(error)
    refused = RunDirectoryError(
        f"{path} cannot be written: {(error.strerror or str(error)).lower()}",
        hint="free some space" if full else "choose a run directory that you can write to",
    )
    if full:
        refused.exit_code = EXIT_DISK_FULL
    return refused


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
