"""Why a process ended: exit codes of trainings and of make, and one word for each cause of a run's failure.

0 is success and 1 a bug, with its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitoring.errors import EXIT_DISK_FULL as EXIT_DISK_FULL

EXIT_REFUSED = 2
"""Something the user can fix; nothing was begun."""
EXIT_FAILED = 3
"""The command did its work, and a run failed, or there is nothing to show."""
# Of a training, from sysexits.h: EX_DATAERR, EX_UNAVAILABLE, EX_OSERR; EXIT_DISK_FULL is EX_IOERR.
EXIT_NON_FINITE = 65
EXIT_LOST_RANK = 69
EXIT_OUT_OF_MEMORY = 71
EXIT_STOPPED = 75
"""Stopped on request with everything saved: EX_TEMPFAIL, which schedulers take for "run me again"."""

# The causes in status.json and in end records.
CANCELLED: Final = "cancelled"
"""Its job was cancelled, not by the runner."""
DEVICE: Final = "device"
"""The driver of a device reported an error."""
DISK_FULL: Final = "disk_full"
ERROR: Final = "error"
LAUNCH_FAILED: Final = "launch_failed"
"""Its job could not be submitted, or ended before the training began."""
LOST_RANK: Final = "lost_rank"
"""Another process of the training was killed, hung or cut off."""
NODE_FAILED: Final = "node_failed"
"""The machine that its job ran on was lost."""
NON_FINITE: Final = "non_finite"
"""The loss or the gradient norm became NaN or infinite."""
OTHER_VALUES: Final = "other_values"
"""It ran with other values than requested."""
OUT_OF_MEMORY: Final = "out_of_memory"
PREEMPTED: Final = "preempted"
"""Its job had to make room for another."""
REFUSED: Final = "refused"
"""The user can fix it."""
RUNNER_DIED: Final = "runner_died"
SIGNAL: Final = "signal"
STOPPED: Final = "stopped"
"""On request."""
STOPPED_EARLY: Final = "stopped_early"
"""It was losing."""
TIMED_OUT: Final = "timeout"

IN_WORDS: Mapping[str, str] = {
    CANCELLED: "a cancellation",
    DEVICE: "an error of a device",
    DISK_FULL: "a full disk",
    ERROR: "an error",
    LAUNCH_FAILED: "a failed launch",
    LOST_RANK: "a lost process",
    NODE_FAILED: "a lost node",
    NON_FINITE: "a loss that was no number",
    OTHER_VALUES: "a run with other values",
    OUT_OF_MEMORY: "want of memory",
    PREEMPTED: "a preemption",
    REFUSED: "a refusal",
    RUNNER_DIED: "a kill with its runner",
    SIGNAL: "a kill",
    STOPPED: "a stop",
    STOPPED_EARLY: "an early stop",
    TIMED_OUT: "a time limit",
}
"""Words for how an attempt ended, as in "resumed at step 3 after a kill"."""

CAUSE_OF_EXIT: Mapping[int, str] = {
    EXIT_REFUSED: REFUSED,
    EXIT_NON_FINITE: NON_FINITE,
    EXIT_LOST_RANK: LOST_RANK,
    EXIT_OUT_OF_MEMORY: OUT_OF_MEMORY,
    EXIT_DISK_FULL: DISK_FULL,
}

# What a training prints after the name of a signal that asks it to stop; its runner has said so of its own.
SAYS_STOPPING = "stopping after this step"
SAYS_STOPPED = "stopped before the first step"
