"""The jobs that a launcher on Slurm knows: how each was submitted, and what was seen of it since."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kharness.matrix.launchers._slurm_arrays import Array, name_and_index
from kharness.matrix.launchers._slurm_calls import Row
from kharness.runs.files import JOB_JSONL
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.launch import Exit, JobStart, Launch

# Seconds between two questions about all jobs, and at most while nothing changes.
ASK_EVERY = 10.0
ASK_SELDOM = 60.0
# Jobs that failed to start on a node before it is left out.
BAD_STARTS = 3

TaskKey = tuple[str, int]
"""The name of an array, and the index of one of its tasks."""


@dataclass
class KnownJob:
    """A job of ours: one cell, in a task of an array."""

    id: str
    launch: Launch
    array: Array | None = None
    """None for one that an earlier runner has submitted."""
    submitted: float | None = None
    """When Slurm has taken it, on the monotonic clock; None while it waits for room in the queue."""
    row: Row | None = None
    starts: Sequence[JobStart] = ()
    size: int = -1
    """Bytes of its job file when that was read."""
    over: int = 0
    """How many answers in turn did not have it, or as one that has ended."""
    exit: Exit | None = None

    @property
    def task(self) -> TaskKey:
        return name_and_index(self.id)

    @property
    def slurm_id(self) -> str:
        """Slurm's own name for its task, `1234_7`; empty while that is not known."""
        return f"{self.row.job}_{self.task[1]}" if self.row is not None else ""


class KnownJobs:
    """All of them, and what holds for several: nodes that are bad, tasks to be ended, the next question."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.by_id: dict[str, KnownJob] = {}
        self.begun: set[TaskKey] = set()
        self.to_end: dict[str, None] = {}
        """Tasks that have no cell left, or can never start, by Slurm's own names."""
        self.next_question = 0.0
        """When Slurm is asked about all of them, on the monotonic clock."""
        self.pause = ASK_EVERY
        self._by_task: dict[TaskKey, list[KnownJob]] = {}
        self._bad_starts: dict[str, set[TaskKey]] = {}
        """Node -> tasks that failed to start there."""
        self._say = say
        self._said: set[str] = set()

    def add(self, job: KnownJob) -> None:
        self.by_id[job.id] = job
        self._by_task.setdefault(job.task, []).append(job)

    def of_task(self, task: TaskKey) -> Sequence[KnownJob]:
        return self._by_task.get(task, ())

    def live(self) -> list[KnownJob]:
        """Those that Slurm has and that have not ended."""
        return [job for job in self.by_id.values() if job.exit is None and job.submitted is not None]

    def read_file(self, job: KnownJob) -> bool:
        """Whether its job file has grown since it was read."""
        try:
            size = os.stat(os.path.join(job.launch.directory, JOB_JSONL)).st_size
        except OSError:
            return False
        if size == job.size:
            return False
        job.size, job.starts = size, read_starts(job.launch.directory, job.id)
        if job.starts:
            self.begun.add(job.task)
        return True

    def ask_soon(self) -> None:
        """Something was just asked of Slurm that it will have done in a second."""
        self.next_question, self.pause = time.monotonic() + 1, ASK_EVERY

    def note_bad_start(self, node: str, task: TaskKey) -> None:
        failed = self._bad_starts.setdefault(node, set())
        failed.add(task)
        if len(failed) == BAD_STARTS:
            self.say_once(f"note: {BAD_STARTS} jobs failed to start on {node}, which is left out from now on")

    @property
    def bad_nodes(self) -> list[str]:
        return sorted(node for node, tasks in self._bad_starts.items() if len(tasks) >= BAD_STARTS)

    def say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)
