"""Runs as jobs of a Slurm cluster: a matrix is a few job arrays, and goes on when the runner is gone.

Slurm is asked about all jobs with one question, at most every ten seconds. What a job does meanwhile is in
the file that it writes in its run directory.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kharness.matrix.launchers._slurm_arrays import (
    Array,
    TaskCells,
    TaskRequest,
    folder_of,
    has_begun_there,
    is_packed,
    leave_stop,
    make_void,
    name_and_index,
)
from kharness.matrix.launchers._slurm_calls import (
    Answer,
    Row,
    SlurmAway,
    SlurmRefused,
    sacct,
    sbatch,
    scancel,
    squeue,
)
from kharness.matrix.launchers._slurm_described import described
from kharness.matrix.launchers._slurm_ends import (
    PATIENT,
    end_of,
    needs_accounts,
    unseen_on,
    waiting_words,
    was_cancelled,
)
from kharness.matrix.launchers._slurm_limits import ClusterLimits, check_words, read_limits, refuse
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import LAUNCH_FAILED, REFUSED
from kharness.runs.files import JOB_JSONL
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.jobs.slurm_task import STOP
from kharness.runs.launch import Exit, Job, JobStart, JobState, Launch, Scheduling, Slot
from monitoring.counts import counted

SCHEDULES = True

# Seconds between two questions about all jobs, and at most while nothing changes.
ASK_EVERY = 10.0
ASK_SELDOM = 60.0
# Files of so many running jobs are looked at, so often.
FILES_AT_ONCE = 64
FILES_EVERY = 1.0
# Jobs that failed to start on a node before it is left out.
BAD_STARTS = 3
# The options of scancel that have a training save.
TO_STOP = (f"--signal={STOP.name}", "--batch")


@dataclass(frozen=True)
class Options:
    """How jobs are submitted."""

    partition: str
    account: str
    qos: str
    time_limit: str
    """In Slurm's form, `30`, `2:00:00` or `1-12`; empty for the partition's own."""
    memory_mb: int
    """0 for the partition's own."""
    cpus: int
    """0 for as many as a cell has threads."""
    signal_seconds: int
    """How long before its time limit a training is told to save."""
    sbatch: str
    """Further flags, each `--name=value`."""
    jobs: int
    """MATRIX_JOBS: at once, over all arrays; 0 for as many as Slurm allows."""
    gpus_per_cell: int
    """MATRIX_GPUS_PER_CELL, for cells that train on GPUs."""
    cells_per_job: int
    """MATRIX_CELLS_PER_JOB: of one task; 0 for as many as take a while, where their durations are known."""
    timeout: int
    """MATRIX_TIMEOUT: seconds of one attempt; 0 for no limit."""
    fork_server: bool
    """LAUNCHER_LOCAL_FORK_SERVER: whether the cells of one task are forked."""

    @property
    def of_task(self) -> TaskCells:
        return TaskCells(self.cells_per_job, self.timeout, self.fork_server)

    def request(self, launch: Launch, limits: ClusterLimits) -> TaskRequest:
        """Return what a cell asks for; with DEVICE=auto a GPU where the partition has some."""
        device = launch.asked.get("DEVICE")
        gpus = device == "cuda" or (device == "auto" and limits.has_gpus(self.partition))
        return TaskRequest(
            cpus=self.cpus or max(1, launch.threads),
            gpus=self.gpus_per_cell if gpus else 0,
            memory_mb=self.memory_mb,
            time_limit=self.time_limit,
            partition=self.partition,
            account=self.account,
            qos=self.qos,
            signal_seconds=self.signal_seconds,
            flags=tuple(shlex.split(self.sbatch)),
        )


def check(options: Options, launches: Sequence[Launch]) -> None:
    """MatrixError for what sbatch would refuse, before anything is written."""
    check_words(
        partition=options.partition,
        account=options.account,
        qos=options.qos,
        time_limit=options.time_limit,
        sbatch=options.sbatch,
    )
    limits = read_limits()
    requests = dict.fromkeys(options.request(launch, limits) for launch in launches)
    refuse(list(requests), options.partition, limits)


def describe(options: Options, launches: Sequence[Launch]) -> list[str]:
    """Lines for a dry run."""
    limits, requests = read_limits(), dict[TaskRequest, list[Launch]]()
    for launch in launches:
        requests.setdefault(options.request(launch, limits), []).append(launch)
    return described(requests, limits, options.of_task, at_once=options.jobs)


def open_launcher(options: Options, say: Callable[[str], None]) -> Scheduling:
    return Slurm(options, say)


@dataclass
class _Known:
    """A job of ours."""

    launch: Launch
    array: Array | None
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


@dataclass
class _Wave:
    """A part of an array that is still to be submitted."""

    array: Array
    first: int
    last: int
    in_doubt: bool = False
    """Whether an earlier try may have been taken."""


@dataclass
class _Timing:
    """When what is done next."""

    ask: float = 0.0
    every: float = ASK_EVERY
    files: float = 0.0
    submit: float = 0.0


class Slurm:
    """Jobs of one or several matrices."""

    name = "slurm"

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options, self._say = options, say
        self._limits: ClusterLimits | None = None
        self._jobs: dict[str, _Known] = {}
        self._open: dict[TaskRequest, Array] = {}
        self._waves: list[_Wave] = []
        self._tasks: dict[tuple[str, int], list[str]] = {}
        """The ids that each task has."""
        self._begun: set[tuple[str, int]] = set()
        self._arrays: list[str] = []
        """Ids of the arrays submitted, for those that come after them."""
        self._to_cancel: dict[str, bool] = {}
        self._to_end: dict[str, None] = {}
        """Tasks that have no cell left, or can never start, by Slurm's own names."""
        self._bad_starts: dict[str, set[tuple[str, int]]] = {}
        """Node -> tasks that failed to start there."""
        self._said: set[str] = set()
        self._timing = _Timing()
        self._turn = 0
        self._keeps_accounts = True
        self._refusal: MatrixError | None = None
        self._is_seen = False
        """Whether jobs of an earlier runner have begun."""

    # Submission

    def submit(self, launch: Launch, slot: Slot) -> Job:
        if self._refusal is not None:
            raise self._refusal
        if self._limits is None:
            self._limits = read_limits()
        request = self._options.request(launch, self._limits)
        array = self._open.get(request)
        if array is not None and (
            array.folder != folder_of(launch)
            or (len(array.tasks) >= self._limits.array_size and array.needs_task(launch))
        ):
            self._close_array(array)
            array = None
        if array is None:
            array = self._open[request] = Array.begin(launch, request, self._options.of_task)
        job = Job(self.name, array.add(launch, slot), "", None, time.time())
        self._add(job.id, _Known(launch, array))
        return job

    def _add(self, id: str, known: _Known) -> None:
        self._jobs[id] = known
        self._tasks.setdefault(name_and_index(id), []).append(id)

    def flush(self) -> bool:
        for array in self._open.values():
            self._close_array(array)
        self._open.clear()
        self._send_cancels()
        if self._waves and time.monotonic() >= self._timing.submit:
            self._submit_waves()
        return not self._waves

    def _close_array(self, array: Array) -> None:
        array.write()
        self._waves.append(_Wave(array, 0, len(array.tasks) - 1))

    def _submit_waves(self) -> None:
        while self._waves:
            wave = self._waves[0]
            if wave.in_doubt and self._has_arrived(wave):
                continue
            after = self._arrays[-1] if self._options.jobs and self._arrays else ""
            excluded = sorted(node for node, tasks in self._bad_starts.items() if len(tasks) >= BAD_STARTS)
            arguments = wave.array.arguments(wave.first, wave.last, at_once=self._options.jobs, after=after)
            answer, said = sbatch([*([f"--exclude={','.join(excluded)}"] if excluded else []), *arguments])
            if answer is Answer.TAKEN:
                self._taken(wave, said)
            elif answer is Answer.REFUSED:
                self._waves.pop(0)
                self._refused(wave, said)
            elif answer is Answer.FULL and wave.last > wave.first:
                middle = (wave.first + wave.last) // 2
                self._waves[0:1] = [
                    _Wave(wave.array, wave.first, middle),
                    _Wave(wave.array, middle + 1, wave.last),
                ]
            else:
                wave.in_doubt = answer is Answer.UNKNOWN
                self._timing.submit = time.monotonic() + (ASK_SELDOM if answer is Answer.FULL else ASK_EVERY)
                left = sum(len(self._of_wave(one)) for one in self._waves)
                self._say_once(f"note: {counted(left, 'cell')} wait for room in Slurm's queue: {said}")
                return

    def _taken(self, wave: _Wave, job: str) -> None:
        self._waves.pop(0)
        self._arrays.append(job)
        now = time.monotonic()
        for known in self._of_wave(wave):
            known.submitted = now
            known.row = Row(job, "PENDING", "", None, "")
        self._timing.ask, self._timing.every = now + 1, ASK_EVERY

    def _has_arrived(self, wave: _Wave) -> bool:
        """Whether a submission that got no answer was taken all the same."""
        try:
            rows = squeue([wave.array.name])
        except SlurmAway:
            self._timing.submit = time.monotonic() + ASK_EVERY
            return False
        found = rows.get((wave.array.name, wave.first))
        wave.in_doubt = False
        if found is None:
            return False
        self._taken(wave, found.job)
        return True

    def _refused(self, wave: _Wave, said: str) -> None:
        for known in self._of_wave(wave):
            known.exit = Exit(None, None, time.time(), REFUSED, f"sbatch: {said}")

    def _of_wave(self, wave: _Wave) -> list[_Known]:
        """Its cells that are still wanted."""
        indices = range(wave.first, wave.last + 1)
        found = [self._jobs[id] for index in indices for id in wave.array.ids(index)]
        return [known for known in found if known.exit is None]

    # What becomes of them

    def adopt(self, launch: Launch, job: Job) -> None:
        """Take over a job of an earlier runner."""
        self._add(job.id, _Known(launch, None, submitted=time.monotonic()))
        self._read_file(job.id, self._jobs[job.id])

    def poll(self, job: Job) -> Exit | None:
        self._look()
        return self._jobs[job.id].exit

    def state(self, job: Job) -> JobState:
        known = self._jobs[job.id]
        # One that has ended runs until it is known how, unless it is to be started again.
        runs = bool(known.starts) and not known.starts[-1].requeued
        waits = waiting_words(known.row, is_packed=is_packed(job.id))
        if known.submitted is None:
            waits = "not submitted yet"
        return JobState(not runs, "" if runs else waits, known.starts)

    def cancel(self, job: Job, *, kill: bool) -> None:
        self._to_cancel[job.id] = kill or self._to_cancel.get(job.id, False)

    def alive(self, job: Job) -> bool:
        row = squeue([name_and_index(job.id)[0]]).get(name_and_index(job.id))
        return row is not None and row.is_active

    def running(self, pairs: Sequence[tuple[Launch, Job]], *, claim: bool) -> dict[str, str]:
        """See Scheduling; with `claim` what Slurm has not got cannot begin any more."""
        names = {name_and_index(job.id)[0]: launch for launch, job in pairs}
        rows = squeue(list(names))
        unknown = names.keys() - {name for name, _ in rows}
        if claim and unknown:
            rows |= self._claim({name: names[name] for name in unknown}, pairs)
        found = {}
        for launch, job in pairs:
            row = rows.get(name_and_index(job.id))
            ended = (starts := read_starts(launch.directory, job.id)) and starts[-1].end is not None
            if row is not None and row.is_active and not (ended and not starts[-1].requeued):
                runs = bool(starts) and not ended
                found[job.id] = "" if runs else waiting_words(row, is_packed=is_packed(job.id))
        return found

    def ends(self, pairs: Sequence[tuple[Launch, Job]]) -> dict[str, Exit]:
        """See Scheduling."""
        starts = {job.id: read_starts(launch.directory, job.id) for launch, job in pairs}
        open_ends = {id: found for id, found in starts.items() if needs_accounts(None, found)}
        rows = self._in_accounts(open_ends)
        found = {}
        for id, its in open_ends.items():
            row = rows.get(name_and_index(id))
            if row is not None and (end := end_of(row, its, over=PATIENT)) is not None:
                found[id] = end
        return found

    def _claim(
        self, names: Mapping[str, Launch], pairs: Sequence[tuple[Launch, Job]]
    ) -> dict[tuple[str, int], Row]:
        """Take back submissions that never came to an end, and look whether one has arrived meanwhile."""
        for name, launch in names.items():
            make_void(folder_of(launch), name)
        rows = squeue(list(names))
        begun = {name_and_index(job.id) for launch, job in pairs if read_starts(launch.directory, job.id)}
        late = [key for key, row in rows.items() if row.is_active and key not in begun]
        scancel([f"{rows[key].job}_{key[1]}" for key in late])
        return {key: row for key, row in rows.items() if key not in late}

    def refusal(self) -> MatrixError | None:
        """See Scheduling."""
        return self._refusal

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """Jobs go on without us."""
        self._send_cancels()

    # Looking

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._timing.files:
            self._timing.files = now + FILES_EVERY
            self._look_at_files()
        if now >= self._timing.ask:
            self._ask()

    def _live(self) -> dict[str, _Known]:
        return {
            id: known
            for id, known in self._jobs.items()
            if known.exit is None and known.submitted is not None
        }

    def _look_at_files(self) -> None:
        """Those of some running jobs, and of others the next time."""
        live = list(self._live().items())
        if len(live) > FILES_AT_ONCE:
            begun = self._turn = self._turn % len(live)
            live = [*live, *live][begun : begun + FILES_AT_ONCE]
            self._turn += FILES_AT_ONCE
        for id, known in live:
            if self._read_file(id, known):
                self._judge(id, known)

    def _read_file(self, id: str, known: _Known) -> bool:
        """Whether its job file has grown since it was read."""
        try:
            size = os.stat(os.path.join(known.launch.directory, JOB_JSONL)).st_size
        except OSError:
            return False
        if size == known.size:
            return False
        known.size, known.starts = size, read_starts(known.launch.directory, id)
        if known.starts:
            self._begun.add(name_and_index(id))
        return True

    def _ask(self) -> None:
        """Ask Slurm about all that has not ended."""
        live = self._live()
        asked = time.monotonic()
        try:
            rows = squeue(sorted({name_and_index(id)[0] for id in live}))
        except SlurmRefused as error:
            self._timing.every = ASK_SELDOM
            self._timing.ask = asked + self._timing.every
            self._say_once(f"note: Slurm does not say how the jobs are: {error}")
            return
        changed = False
        for id, known in live.items():
            row = rows.get(name_and_index(id))
            if row is not None:
                changed = changed or known.row is None or row.state != known.row.state
                known.row = row
            known.over = 0 if row is not None and row.is_active else known.over + 1
            self._read_file(id, known)
        if self._refuse_unseen():
            return
        self._ask_accounts({id: known for id, known in live.items() if known.over})
        for id, known in live.items():
            self._judge(id, known)
        self._timing.every = ASK_EVERY if changed else min(1.5 * self._timing.every, ASK_SELDOM)
        self._timing.ask = asked + self._timing.every

    def _refuse_unseen(self) -> bool:
        """Whether all jobs are ended, as nodes do not see where they write, and none has ever begun."""
        if self._is_seen or self._begun:
            return False
        nodes = unseen_on([known.row for known in self._jobs.values() if known.row])
        if not nodes:
            return False
        folder = folder_of(next(iter(self._jobs.values())).launch)
        if has_begun_there(folder):  # on another node, for an earlier runner
            self._is_seen = True
            return False
        self._refusal = refusal = MatrixError(
            f"RESULTS_DIR: {nodes} cannot write to {folder}, where the logs of its jobs are",
            hint="set RESULTS_DIR to a folder that all nodes mount; where only these do not: "
            f"CONFIG_LAUNCHER_SLURM_SBATCH=--exclude={nodes.replace(', ', ',')}",
        )
        self._open.clear()
        self._waves.clear()
        for id, known in self._jobs.items():
            if known.exit is None:
                known.exit = Exit(None, None, time.time(), REFUSED, str(refusal))
                if known.row is not None and known.row.is_active:
                    self._to_end[_task(id, known)] = None
        self._send_cancels()
        return True

    def _ask_accounts(self, over: Mapping[str, _Known]) -> None:
        """Take from sacct, where there is one, what it alone knows of jobs that are over."""
        asked = {id: known for id, known in over.items() if needs_accounts(known.row, known.starts)}
        rows = self._in_accounts({id: known.starts for id, known in asked.items()})
        for id, known in asked.items():
            known.row = rows.get(name_and_index(id), known.row)

    def _in_accounts(self, ids: Mapping[str, Sequence[JobStart]]) -> dict[tuple[str, int], Row]:
        """The rows that sacct has for these; none where it does not answer, which is a note."""
        if not self._keeps_accounts or not ids:
            return {}
        times = [starts[0].started for starts in ids.values() if starts]
        try:
            rows = sacct(sorted({name_and_index(id)[0] for id in ids}), min(times, default=time.time()))
        except SlurmRefused as error:
            self._say_once(f"note: the accounts do not say why jobs have ended: {error}")
            return {}
        self._keeps_accounts = rows is not None
        return rows or {}

    def _judge(self, id: str, known: _Known) -> None:
        task = name_and_index(id)
        if self._keeps_accounts and not known.over and was_cancelled(known.starts):
            return  # who has done it the accounts say, once it is over
        known.exit = end_of(known.row, known.starts, over=known.over, has_begun=task in self._begun)
        if known.exit is None or known.exit.cause != LAUNCH_FAILED or known.row is None:
            return
        if known.row.is_active and not known.over:  # held, or waiting for what never comes
            self._to_end[_task(id, known)] = None
        if known.row.nodes and not known.starts:
            failed = self._bad_starts.setdefault(known.row.nodes, set())
            failed.add(task)
            if len(failed) == BAD_STARTS:
                self._say_once(
                    f"note: {BAD_STARTS} jobs failed to start on {known.row.nodes}, "
                    "which is left out from now on"
                )

    def _send_cancels(self) -> None:
        """Pass on what was asked for since the last time, in one call of each kind."""
        kinds: dict[tuple[str, ...], list[str]] = {}
        for id, kill in self._to_cancel.items():
            known = self._jobs[id]
            if known.exit is not None:
                continue
            if is_packed(id):
                self._stop_packed(id, known, kill=kill, signals=kinds.setdefault(TO_STOP, []))
                continue
            if known.submitted is None:
                self._give_back(id, known)
                continue
            self._read_file(id, known)
            runs = bool(known.starts) and known.starts[-1].end is None
            # `scancel --signal` of a job that waits tries on for a minute and a half.
            options: tuple[str, ...] = (TO_STOP, ("--signal=KILL", "--full"))[kill] if runs else ()
            job = known.starts[-1].job if runs else _task(id, known)
            if job:
                kinds.setdefault(options, []).append(job)
        self._to_cancel.clear()
        kinds.setdefault((), []).extend(self._to_end)
        self._to_end.clear()
        for options, jobs in kinds.items():
            if not jobs:
                continue
            try:
                scancel(jobs, *options)
            except SlurmRefused as error:
                self._say_once(f"warning: {error}")
            self._timing.ask, self._timing.every = time.monotonic() + 1, ASK_EVERY

    def _stop_packed(self, id: str, known: _Known, *, kill: bool, signals: list[str]) -> None:
        """One cell of a task that may have others: by a file, which the task looks for before each."""
        leave_stop(known.launch, id, kill=kill)
        self._read_file(id, known)
        last = known.starts[-1] if known.starts else None
        if last is not None and last.end is None:
            if last.job not in signals:
                signals.append(last.job)
            return
        known.exit = (last.end if last else None) or Exit(None, None, time.time())
        if any(self._jobs[other].exit is None for other in self._tasks[name_and_index(id)]):
            return
        if known.submitted is None:
            self._take_out(id)
        elif known.row is not None and known.row.state == "PENDING":
            self._to_end[_task(id, known)] = None

    def _give_back(self, id: str, known: _Known) -> None:
        """One that Slurm has not got yet."""
        known.exit = Exit(None, None, time.time())
        self._take_out(id)

    def _take_out(self, id: str) -> None:
        """Leave out the task of an id, which has not been submitted."""
        name, index = name_and_index(id)
        waves = []
        for wave in self._waves:
            if wave.array.name == name and wave.first <= index <= wave.last:
                waves += [_Wave(wave.array, wave.first, index - 1), _Wave(wave.array, index + 1, wave.last)]
            else:
                waves.append(wave)
        self._waves = [wave for wave in waves if wave.first <= wave.last]

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def _task(id: str, known: _Known) -> str:
    """Slurm's own name for a task: `1234_7`."""
    return f"{known.row.job}_{name_and_index(id)[1]}" if known.row is not None else ""
