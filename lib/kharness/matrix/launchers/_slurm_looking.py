"""How jobs on Slurm stand: known by their own files, one question about all, and the accounts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kharness.matrix.launchers._slurm_arrays import (
    Array,
    end_of_log,
    folder_of,
    has_begun_there,
    is_packed,
    name_and_index,
)
from kharness.matrix.launchers._slurm_calls import Row, SlurmRefused, sacct, squeue
from kharness.matrix.launchers._slurm_ends import PATIENT, end_of, needs_accounts, unseen_on, was_cancelled
from kharness.runs.causes import memory_line
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import LAUNCH_FAILED, NODE_FAILED, OUT_OF_MEMORY, REFUSED
from kharness.runs.files import JOB_JSONL
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.launch import Exit, Job, JobStart, Launch

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
        return self.row.task(self.task[1]) if self.row is not None else ""


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
        self.say_once = cache(say)

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


# Files of so many running jobs are looked at, so often.
FILES_AT_ONCE = 64
FILES_EVERY = 1.0


class Looking:
    """Looks at files each second, and asks Slurm at most every ten."""

    def __init__(self, jobs: KnownJobs) -> None:
        self._jobs = jobs
        self.refusal: MatrixError | None = None
        """Why none of it can run here; then all jobs have ended."""
        self._next_files = 0.0
        self._turn = 0
        self._keeps_accounts = True
        self._is_seen = False
        """Whether jobs of an earlier runner have begun."""

    def look(self) -> None:
        now = time.monotonic()
        if now >= self._next_files:
            self._next_files = now + FILES_EVERY
            self._look_at_files()
        if now >= self._jobs.next_question:
            self._ask()

    def ends(self, pairs: Sequence[tuple[Launch, Job]]) -> dict[str, Exit]:
        """How jobs of earlier runners have ended that noted no end, as the accounts have it."""
        starts = {job.id: read_starts(launch.directory, job.id) for launch, job in pairs}
        open_ends = {id: found for id, found in starts.items() if needs_accounts(None, found)}
        rows = self._in_accounts(open_ends)
        found = {}
        for id, its in open_ends.items():
            row = rows.get(name_and_index(id))
            if row is not None and (end := end_of(row, its, over=PATIENT)) is not None:
                found[id] = end
        return found

    def _look_at_files(self) -> None:
        """Those of some running jobs, and of others the next time."""
        live = self._jobs.live()
        if len(live) > FILES_AT_ONCE:
            begun = self._turn = self._turn % len(live)
            # twice, so that a part that begins near the end goes on at the beginning
            live = [*live, *live][begun : begun + FILES_AT_ONCE]
            self._turn += FILES_AT_ONCE
        for job in live:
            if self._jobs.read_file(job):
                self._judge(job)

    def _ask(self) -> None:
        """Ask Slurm about all that has not ended."""
        live, jobs = self._jobs.live(), self._jobs
        asked = time.monotonic()
        try:
            rows = squeue(sorted({job.task[0] for job in live}))
        except SlurmRefused as error:
            jobs.pause = ASK_SELDOM
            jobs.next_question = asked + jobs.pause
            jobs.say_once(f"note: Slurm does not say how the jobs are: {error}")
            return
        changed = False
        for job in live:
            row = rows.get(job.task)
            if row is not None:
                changed = changed or job.row is None or row.state != job.row.state
                job.row = row
            job.over = 0 if row is not None and row.is_active else job.over + 1
            jobs.read_file(job)
        if self._refuse_unseen():
            return
        self._ask_accounts([job for job in live if job.over])
        for job in live:
            self._judge(job)
        # Each question costs all users of the cluster time of its controller (squeue(1), PERFORMANCE).
        jobs.pause = ASK_EVERY if changed else min(1.5 * jobs.pause, ASK_SELDOM)
        jobs.next_question = asked + jobs.pause

    def _refuse_unseen(self) -> bool:
        """Whether all jobs are ended, as nodes do not see where they write, and none has ever begun."""
        if self._is_seen or self._jobs.begun:
            return False
        jobs = self._jobs.by_id.values()
        # A node that has written to a log can: such a job failed to start for another reason, as its memory.
        nodes = unseen_on([job.row for job in jobs if job.row and not end_of_log(job.launch, job.id)])
        if not nodes:
            return False
        folder = folder_of(next(iter(jobs)).launch)
        if has_begun_there(folder):  # on another node, for an earlier runner
            self._is_seen = True
            return False
        self.refusal = refusal = MatrixError(
            f"RESULTS_DIR: {nodes} cannot write to {folder}, where the logs of its jobs are",
            hint="set RESULTS_DIR to a folder that all nodes mount; where only these do not: "
            f"CONFIG_LAUNCHER_SLURM_SBATCH=--exclude={nodes.replace(', ', ',')}",
        )
        for job in jobs:
            if job.exit is None:
                job.exit = Exit(None, None, time.time(), REFUSED, str(refusal))
                if job.row is not None and job.row.is_active:
                    self._jobs.to_end[job.slurm_id] = None
        return True

    def _ask_accounts(self, over: Sequence[KnownJob]) -> None:
        """Take from sacct, where there is one, what it alone knows of jobs that are over."""
        asked = [job for job in over if needs_accounts(job.row, job.starts)]
        rows = self._in_accounts({job.id: job.starts for job in asked})
        for job in asked:
            job.row = rows.get(job.task, job.row)

    def _in_accounts(self, ids: Mapping[str, Sequence[JobStart]]) -> dict[TaskKey, Row]:
        """The rows that sacct has for these; none where it does not answer, which is a note."""
        if not self._keeps_accounts or not ids:
            return {}
        times = [starts[0].started for starts in ids.values() if starts]
        try:
            rows = sacct(sorted({name_and_index(id)[0] for id in ids}), min(times, default=time.time()))
        except SlurmRefused as error:
            self._jobs.say_once(f"note: the accounts do not say why jobs have ended: {error}")
            return {}
        self._keeps_accounts = rows is not None
        return rows or {}

    def _judge(self, job: KnownJob) -> None:
        if self._keeps_accounts and not job.over and was_cancelled(job.starts):
            return  # who has done it the accounts say, once it is over
        job.exit = end_of(job.row, job.starts, over=job.over, has_begun=job.task in self._jobs.begun)
        is_told_in_log = job.exit is not None and (job.exit.signal if is_packed(job.id) else not job.starts)
        if job.exit is not None and is_told_in_log:
            job.exit = with_memory(job.exit, end_of_log(job.launch, job.id))
        if job.exit is None or job.exit.cause != LAUNCH_FAILED or job.row is None:
            return
        if job.row.is_active and not job.over:  # held, or waiting for what never comes
            self._jobs.to_end[job.slurm_id] = None
        if job.row.nodes and not job.starts:
            self._jobs.note_bad_start(job.row.nodes, job.task)


def with_memory(end: Exit, log: Sequence[str]) -> Exit:
    """The end of a cell that shares its job or never began, where the job's log says that it was memory."""
    if end.cause not in (None, LAUNCH_FAILED, NODE_FAILED) or not (line := memory_line(log)):
        return end
    return replace(end, cause=OUT_OF_MEMORY, reason=line)
