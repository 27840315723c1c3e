"""Runs as jobs of a Slurm cluster: a matrix is a few job arrays, and goes on when the runner is gone.

Slurm is asked about all jobs with one question, at most every ten seconds. What a job does meanwhile is in
the file that it writes in its run directory.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kharness.config.make.typed import typed_setting
from kharness.matrix.launchers._slurm_arrays import (
    SCRIPT,
    Array,
    SlurmOptions,
    TaskRequest,
    asked_of,
    folder_of,
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
    sbatch,
    scancel,
    squeue,
)
from kharness.matrix.launchers._slurm_ends import waiting_words
from kharness.matrix.launchers._slurm_limits import (
    ClusterLimits,
    asked_by,
    check_words,
    read_limits,
    refuse,
    test_only,
)
from kharness.matrix.launchers._slurm_looking import (
    ASK_EVERY,
    ASK_SELDOM,
    KnownJob,
    KnownJobs,
    Looking,
    TaskKey,
)
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import REFUSED
from kharness.runs.jobs.job_file import read_starts
from kharness.runs.jobs.slurm_task import STOP
from kharness.runs.launch import Exit, Job, JobState, Launch, Scheduling, Slot
from monitoring.counts import counted

SCHEDULES = True

# The options of scancel that have a training save.
TO_STOP = (f"--signal={STOP.name}", "--batch")


@dataclass(frozen=True)
class Options(SlurmOptions):
    """How jobs are submitted."""

    def request(self, launch: Launch, limits: ClusterLimits) -> TaskRequest:
        """Return the resources of a cell's task; DEVICE=auto requests GPUs if the partition has some."""
        device, per_cell = launch.device(self.gpus_per_cell), self.per_cell
        threads, gpus, at_once = max(1, launch.threads), 0, 1
        if device == "cuda" or (device == "auto" and limits.has_gpus(self.partition)):
            gpus = max(self.gpus, per_cell) if self.packed else per_cell
            at_once = gpus // per_cell
        elif self.packed and launch.threads:  # else it takes all that the job has
            at_once = max(1, self.cpus // threads)
        cpus = self.cpus or threads * min(at_once, self.cells_per_job or at_once)
        return TaskRequest(self, cpus, gpus, at_once)


def check(options: Options, launches: Sequence[Launch]) -> None:
    """Raise MatrixError, before anything is written, for options that sbatch would refuse."""
    check_words(options)
    if options.packed and options.gpus % options.per_cell:
        raise MatrixError(
            f"{asked_by('LAUNCHER_SLURM_GPUS')}={options.gpus} is not a multiple of "
            f"{asked_by('MATRIX_GPUS_PER_CELL')}={options.per_cell}",
            hint="a job has the GPUs of whole cells",
        )
    limits = read_limits()
    requests = dict.fromkeys(options.request(launch, limits) for launch in launches)
    refuse(list(requests), options.partition, limits)


def queue(options: Options) -> str:
    """Say to which partition jobs go."""
    where = f"partition {options.partition}" if options.partition else "the cluster's default partition"
    other = typed_setting("; CONFIG_LAUNCHER_SLURM_PARTITION=… with this call takes another", "")
    return f"submitted to {where}{other}"


def describe(options: Options, launches: Sequence[Launch]) -> list[str]:
    """A line for each kind of array, with its script, the arguments of sbatch and the answer to a trial."""
    limits, requests = read_limits(), dict[TaskRequest, list[Launch]]()
    for launch in launches:
        requests.setdefault(options.request(launch, limits), []).append(launch)
    lines, at_once = [], options.jobs
    for request, launches in requests.items():
        array = Array.begin(launches[0], request)
        for launch in launches:
            array.add(launch, Slot())
        largest = min(len(array.tasks), limits.array_size)
        throttle = f", {at_once} at once" if at_once else ""
        most = max(map(len, array.tasks))
        cells = f", each of up to {counted(most, 'cell')}" if options.packed else ""
        cells += f", {min(most, request.at_once)} at a time" if cells and most > 1 else ""
        arrays = counted(-(-len(array.tasks) // limits.array_size), "job array")
        lines.append(f"slurm: {arrays} of {counted(largest, 'task')}{cells}{throttle}")
        *words, _, _, _, _, _ = array.arguments(0, largest - 1, at_once=at_once)
        shown = [one for one in words if not one.startswith(("--job-name", "--chdir", "--output"))]
        lines.append(f"  sbatch {shlex.join(shown)} … job.sh")
        lines.append(f"  job.sh: {SCRIPT.strip().replace(chr(10), '; ')}")
        try:
            lines.append(f"  sbatch --test-only: {test_only(request)}")
        except SlurmRefused as error:
            lines.append(f"  sbatch --test-only: {error}")
    return lines


def open_launcher(options: Options, say: Callable[[str], None]) -> Scheduling:
    return Slurm(options, say)


class Slurm:
    """Jobs of one or several matrices."""

    name = "slurm"

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._asked = options.asked
        self._jobs = KnownJobs(say)
        self._submission = Submission(self._jobs, options)
        self._looking = Looking(self._jobs)
        self._to_cancel: dict[str, bool] = {}

    def submit(self, launch: Launch, slot: Slot) -> Job:
        if self._looking.refusal is not None:
            raise self._looking.refusal
        return Job(self.name, self._submission.add(launch, slot), "", None, time.time())

    def flush(self) -> bool:
        self._submission.close_arrays()
        self._send_cancels()
        return self._submission.submit()

    def poll(self, job: Job) -> Exit | None:
        self._look()
        found = self._jobs.by_id[job.id].exit
        if found is not None:
            self._submission.try_soon()
        return found

    def state(self, job: Job) -> JobState:
        known = self._jobs.by_id[job.id]
        # One that has ended runs until it is known how, unless it is to be started again.
        runs = bool(known.starts) and not known.starts[-1].requeued
        waits = waiting_words(known.row, is_packed=is_packed(job.id))
        if known.submitted is None:
            waits = "not submitted yet"
        return JobState(not runs, "" if runs else waits, known.starts)

    def cancel(self, job: Job, *, kill: bool) -> None:
        self._to_cancel[job.id] = kill or self._to_cancel.get(job.id, False)

    def refusal(self) -> MatrixError | None:
        """See Scheduling."""
        return self._looking.refusal

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """Jobs go on without us."""
        self._send_cancels()

    def _look(self) -> None:
        was_refused = self._looking.refusal is not None
        self._looking.look()
        if self._looking.refusal is not None and not was_refused:
            self._submission.drop()
            self._send_cancels()

    # Jobs of earlier runners

    def adopt(self, launch: Launch, job: Job) -> None:
        """Take over a job of an earlier runner."""
        known = KnownJob(job.id, launch, submitted=time.monotonic())
        self._jobs.add(known)
        self._jobs.read_file(known)

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

    def withdraw(self, pairs: Sequence[tuple[Launch, Job]], *, all_waiting: bool) -> int:
        """See Scheduling; that a job has begun meanwhile is for the controller to know."""
        tasks = {name_and_index(job.id): folder_of(launch) for launch, job in pairs}
        rows = squeue(sorted({name for name, _ in tasks}))
        waiting = {key: row for key, row in rows.items() if key in tasks and row.state == "PENDING"}
        arrays = {key[0]: tasks[key] for key in waiting}
        other = {
            name for name, folder in arrays.items() if all_waiting or asked_of(folder, name) != self._asked
        }
        chosen = {key: row.task(key[1]) for key, row in waiting.items() if key[0] in other}
        scancel(list(chosen.values()), "--state=PENDING")
        return sum(name_and_index(job.id) in chosen for _, job in pairs)

    def ends(self, pairs: Sequence[tuple[Launch, Job]]) -> dict[str, Exit]:
        """See Scheduling."""
        return self._looking.ends(pairs)

    def _claim(self, names: Mapping[str, Launch], pairs: Sequence[tuple[Launch, Job]]) -> dict[TaskKey, Row]:
        """Take back submissions that never came to an end, and look whether one has arrived meanwhile."""
        for name, launch in names.items():
            # first: a task that begins between this and the look finds it, and does nothing
            make_void(folder_of(launch), name)
        rows = squeue(list(names))
        begun = {name_and_index(job.id) for launch, job in pairs if read_starts(launch.directory, job.id)}
        late = [key for key, row in rows.items() if row.is_active and key not in begun]
        scancel([rows[key].task(key[1]) for key in late])
        return {key: row for key, row in rows.items() if key not in late}

    # Ending jobs

    def _send_cancels(self) -> None:
        """Pass on what was asked for since the last time, in one call of each kind."""
        kinds: dict[tuple[str, ...], list[str]] = {}
        for id, kill in self._to_cancel.items():
            known = self._jobs.by_id[id]
            if known.exit is not None:
                continue
            if is_packed(id):
                self._stop_packed(known, kill=kill, signals=kinds.setdefault(TO_STOP, []))
                continue
            if known.submitted is None:  # Slurm has not got it yet
                known.exit = Exit(None, None, time.time())
                self._submission.take_out(id)
                continue
            self._jobs.read_file(known)
            runs = bool(known.starts) and known.starts[-1].end is None
            # `scancel --signal` of a job that waits keeps trying for a minute and a half.
            options: tuple[str, ...] = (TO_STOP, ("--signal=KILL", "--full"))[kill] if runs else ()
            job = known.starts[-1].job if runs else known.slurm_id
            if job:
                kinds.setdefault(options, []).append(job)
        self._to_cancel.clear()
        kinds.setdefault((), []).extend(self._jobs.to_end)
        self._jobs.to_end.clear()
        for options, jobs in kinds.items():
            if not jobs:
                continue
            try:
                scancel(jobs, *options)
            except SlurmRefused as error:
                self._jobs.say_once(f"warning: {error}")
            self._jobs.ask_soon()

    def _stop_packed(self, known: KnownJob, *, kill: bool, signals: list[str]) -> None:
        """One cell of a task that may have others: by a file, which the task looks for before each."""
        leave_stop(known.launch, known.id, kill=kill)
        self._jobs.read_file(known)
        last = known.starts[-1] if known.starts else None
        if last is not None and last.end is None:
            if last.job not in signals:
                signals.append(last.job)
            return
        known.exit = (last.end if last else None) or Exit(None, None, time.time())
        if any(other.exit is None for other in self._jobs.of_task(known.task)):
            return
        if known.submitted is None:
            self._submission.take_out(known.id)
        elif known.row is not None and known.row.state == "PENDING":
            self._jobs.to_end[known.slurm_id] = None


@dataclass
class Wave:
    """A part of an array that is still to be submitted."""

    array: Array
    first: int
    last: int
    in_doubt: bool = False
    """Whether an earlier try may have been taken."""


class Submission:
    """Cells that Slurm has not got yet."""

    def __init__(self, jobs: KnownJobs, options: Options) -> None:
        self._jobs, self._options = jobs, options
        self._limits: ClusterLimits | None = None
        self._open: dict[TaskRequest, Array] = {}
        self._waves: list[Wave] = []
        self._arrays: list[str] = []
        """Ids of the arrays submitted, for those that come after them."""
        self._next_try = 0.0
        self._tried = 0.0

    def add(self, launch: Launch, slot: Slot) -> str:
        """Collect a cell; returns the id of its submission."""
        if self._limits is None:
            self._limits = read_limits()
        request = self._options.request(launch, self._limits)
        array = self._open.get(request)
        if array is not None and (
            array.folder != folder_of(launch)
            or (len(array.tasks) >= self._limits.array_size and array.needs_task(launch))
        ):
            self._close(array)
            array = None
        if array is None:
            array = self._open[request] = Array.begin(launch, request)
        id = array.add(launch, slot)
        self._jobs.add(KnownJob(id, launch, array))
        return id

    def close_arrays(self) -> None:
        """No further cell belongs to what was collected so far."""
        for array in self._open.values():
            self._close(array)
        self._open.clear()

    def submit(self) -> bool:
        """Submit as many tasks as the queue has room for; returns whether all are submitted."""
        if self._waves and time.monotonic() >= self._next_try:
            self._submit_waves()
        return not self._waves

    def try_soon(self) -> None:
        """A job of ours has ended, which may leave room for another."""
        self._next_try = min(self._next_try, self._tried + ASK_EVERY)

    def take_out(self, id: str) -> None:
        """Leave out the task of an id, which has not been submitted."""
        name, index = name_and_index(id)
        waves = []
        for wave in self._waves:
            if wave.array.name == name and wave.first <= index <= wave.last:
                waves += [Wave(wave.array, wave.first, index - 1), Wave(wave.array, index + 1, wave.last)]
            else:
                waves.append(wave)
        self._waves = [wave for wave in waves if wave.first <= wave.last]

    def drop(self) -> None:
        """Discard the tasks that were not submitted yet."""
        self._open.clear()
        self._waves.clear()

    def _close(self, array: Array) -> None:
        array.write()
        self._waves.append(Wave(array, 0, len(array.tasks) - 1))

    def _submit_waves(self) -> None:
        while self._waves:
            wave = self._waves[0]
            # sbatch may have been taken although its answer never came: submitted again, each cell would be
            # there twice
            if wave.in_doubt and self._has_arrived(wave):
                continue
            # JOBS= is the throttle (%N) of one array; over several it holds because each waits for the one
            # before
            after = self._arrays[-1] if self._options.jobs and self._arrays else ""
            excluded = self._jobs.bad_nodes
            arguments = wave.array.arguments(wave.first, wave.last, at_once=self._options.jobs, after=after)
            answer, said = sbatch([*([f"--exclude={','.join(excluded)}"] if excluded else []), *arguments])
            if answer is Answer.TAKEN:
                self._taken(wave, said)
            elif answer is Answer.REFUSED:
                self._waves.pop(0)
                self._refused(wave, said)
            elif answer is Answer.FULL and wave.last > wave.first:
                # limits of a queue count the tasks of an array one by one, so half of them may have room
                middle = (wave.first + wave.last) // 2
                self._waves[0:1] = [
                    Wave(wave.array, wave.first, middle),
                    Wave(wave.array, middle + 1, wave.last),
                ]
            else:
                wave.in_doubt = answer is Answer.UNKNOWN
                self._try_after(ASK_SELDOM if answer is Answer.FULL else ASK_EVERY)
                left = sum(len(self._of_wave(one)) for one in self._waves)
                wait = "waits" if left == 1 else "wait"
                self._jobs.say_once(f"note: {counted(left, 'cell')} {wait} for room in Slurm's queue: {said}")
                return

    def _try_after(self, seconds: float) -> None:
        self._tried = time.monotonic()
        self._next_try = self._tried + seconds

    def _taken(self, wave: Wave, job: str) -> None:
        self._waves.pop(0)
        self._arrays.append(job)
        now = time.monotonic()
        for known in self._of_wave(wave):
            known.submitted = now
            known.row = Row(job, "PENDING", "", None, "")
        self._jobs.ask_soon()

    def _has_arrived(self, wave: Wave) -> bool:
        """Whether a submission that got no answer was taken all the same."""
        try:
            rows = squeue([wave.array.name])
        except SlurmAway:
            self._try_after(ASK_EVERY)
            return False
        found = rows.get((wave.array.name, wave.first))
        wave.in_doubt = False
        if found is None:
            return False
        self._taken(wave, found.job)
        return True

    def _refused(self, wave: Wave, said: str) -> None:
        for known in self._of_wave(wave):
            known.exit = Exit(None, None, time.time(), REFUSED, f"sbatch: {said}")

    def _of_wave(self, wave: Wave) -> list[KnownJob]:
        """Its cells that are still wanted."""
        indices = range(wave.first, wave.last + 1)
        found = [self._jobs.by_id[id] for index in indices for id in wave.array.ids(index)]
        return [known for known in found if known.exit is None]
