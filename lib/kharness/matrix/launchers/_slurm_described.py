"""A matrix as it would be on Slurm, for a dry run: arrays, the call of sbatch, and what Slurm says to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kharness.matrix.launchers._slurm_arrays import SCRIPT, Array, TaskRequest
from kharness.matrix.launchers._slurm_calls import SlurmRefused
from kharness.matrix.launchers._slurm_limits import ClusterLimits, test_only
from kharness.runs.launch import Launch, Slot
from monitoring.counts import counted


def described(
    requests: Mapping[TaskRequest, Sequence[Launch]], limits: ClusterLimits, *, at_once: int = 0
) -> list[str]:
    """A line for each kind of array, with its script, the arguments of sbatch and the answer to a trial."""
    lines = []
    for request, launches in requests.items():
        sizes = [len(launches[i : i + limits.array_size]) for i in range(0, len(launches), limits.array_size)]
        throttle = f", {at_once} at once" if at_once else ""
        tasks = f"{counted(len(sizes), 'job array')} of {counted(max(sizes), 'task')}"
        lines.append(f"slurm: {tasks}{throttle}")
        array = Array.begin(launches[0], request)
        array.add(launches[0], Slot())
        *options, _, _, _, _, _ = array.arguments(0, max(sizes) - 1, at_once=at_once)
        shown = [one for one in options if not one.startswith(("--job-name", "--chdir", "--output"))]
        lines.append(f"  sbatch {shlex.join(shown)} … job.sh")
        lines.append(f"  job.sh: {SCRIPT.strip().replace(chr(10), '; ')}")
        try:
            lines.append(f"  sbatch --test-only: {test_only(request)}")
        except SlurmRefused as error:
            lines.append(f"  sbatch --test-only: {error}")
    return lines
