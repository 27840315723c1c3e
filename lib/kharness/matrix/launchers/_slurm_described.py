"""A matrix as it would be on Slurm, for a dry run: arrays, the call of sbatch, and what Slurm says to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kharness.matrix.launchers._slurm_arrays import SCRIPT, Array, TaskCells, TaskRequest
from kharness.matrix.launchers._slurm_calls import SlurmRefused
from kharness.matrix.launchers._slurm_limits import ClusterLimits, test_only
from kharness.runs.launch import Launch, Slot
from monitoring.counts import counted


def described(
    requests: Mapping[TaskRequest, Sequence[Launch]],
    limits: ClusterLimits,
    of_task: TaskCells,
    *,
    at_once: int = 0,
) -> list[str]:
    """A line for each kind of array, with its script, the arguments of sbatch and the answer to a trial."""
    lines = []
    for request, launches in requests.items():
        array = Array.begin(launches[0], request, of_task)
        for launch in launches:
            array.add(launch, Slot())
        largest = min(len(array.tasks), limits.array_size)
        throttle = f", {at_once} at once" if at_once else ""
        most = max(map(len, array.tasks))
        cells = f", each of up to {counted(most, 'cell')}" if of_task.packed else ""
        cells += f", {min(most, request.at_once)} at a time" if cells and most > 1 else ""
        arrays = counted(-(-len(array.tasks) // limits.array_size), "job array")
        lines.append(f"slurm: {arrays} of {counted(largest, 'task')}{cells}{throttle}")
        *options, _, _, _, _, _ = array.arguments(0, largest - 1, at_once=at_once)
        shown = [one for one in options if not one.startswith(("--job-name", "--chdir", "--output"))]
        lines.append(f"  sbatch {shlex.join(shown)} … job.sh")
        lines.append(f"  job.sh: {SCRIPT.strip().replace(chr(10), '; ')}")
        try:
            lines.append(f"  sbatch --test-only: {test_only(request)}")
        except SlurmRefused as error:
            lines.append(f"  sbatch --test-only: {error}")
    return lines
