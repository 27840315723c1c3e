"""Errors of a training that the user can fix.

KharnessError
└── TrainingError
    ├── DeviceError       the requested device is not there
    ├── DatasetError      a dataset is missing, damaged, too small or cannot be fetched
    ├── ResumeError       a run cannot be resumed as requested
    ├── CheckpointError   a checkpoint is not what it says
    │   └── CheckpointWriteError  it cannot be written; exit code 74
    ├── LostRankError     another process of the training is gone; exit code 69
    ├── NonFiniteError    the loss or the gradient is no longer a number; exit code 65
    └── OutOfMemoryError  of the processor or of a GPU; exit code 71

`cause` is the kind of failure in one word, for the end record; docs/metrics.md lists them.
"""

from __future__ import annotations

from kharness.config.errors import KharnessError
from kharness.runs.exit_codes import (
    ERROR,
    EXIT_DISK_FULL,
    EXIT_LOST_RANK,
    EXIT_NON_FINITE,
    EXIT_OUT_OF_MEMORY,
    LOST_RANK,
    NON_FINITE,
    OUT_OF_MEMORY,
    REFUSED,
)


class TrainingError(KharnessError):
    """A training that cannot start, or cannot continue."""

    cause: str = REFUSED


class DeviceError(TrainingError):
    """The requested device is not there."""


class DatasetError(TrainingError):
    """A dataset is missing, damaged, too small or cannot be fetched."""


class ResumeError(TrainingError):
    """A run cannot be resumed as requested."""


class CheckpointError(TrainingError):
    """A checkpoint is not what it says."""


class CheckpointWriteError(CheckpointError):
    """A checkpoint cannot be written; `cause` is disk_full if that is why."""

    exit_code = EXIT_DISK_FULL

    def __init__(self, message: str, *, hint: str = "", cause: str = ERROR) -> None:
        super().__init__(message, hint=hint)
        self.cause = cause


class LostRankError(TrainingError):
    """Another rank is gone or does not answer; `is_reported` if another rank reports it."""

    exit_code = EXIT_LOST_RANK
    cause: str = LOST_RANK

    def __init__(self, message: str, *, is_reported: bool) -> None:
        super().__init__(message, hint="start the training again: it resumes from the newest checkpoint")
        self.is_reported = is_reported


class NonFiniteError(TrainingError):
    """The loss or the gradient is no longer a number; continuing would only spoil the weights."""

    exit_code = EXIT_NON_FINITE
    cause: str = NON_FINITE


class OutOfMemoryError(TrainingError):
    """The memory of the processor or of a GPU does not suffice."""

    exit_code = EXIT_OUT_OF_MEMORY
    cause: str = OUT_OF_MEMORY


def first_line(error: BaseException) -> str:
    """First line of an error's message; the name of its type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
