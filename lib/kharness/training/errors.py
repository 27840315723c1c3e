"""What stops a training that the user can mend.

KharnessError
└── TrainingError
    ├── DeviceError       the device that was asked for is not there
    ├── DatasetError      a dataset is missing, damaged, too small or cannot be fetched
    ├── CheckpointError   a checkpoint cannot be written, or is not what it says
    └── NonFiniteError    the loss or the gradient is no longer a number; exit code 65
"""

from __future__ import annotations

from kharness.config.errors import KharnessError


class TrainingError(KharnessError):
    """A training that cannot start, or cannot go on."""


class DeviceError(TrainingError):
    """The device that was asked for is not there."""


class DatasetError(TrainingError):
    """A dataset is missing, damaged, too small or cannot be fetched."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be written, or is not what it says."""


class NonFiniteError(TrainingError):
    """The loss or the gradient is no longer a number; going on would only spoil the weights."""

    exit_code = 65
