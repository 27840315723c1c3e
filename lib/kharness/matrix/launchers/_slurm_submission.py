"""Hand cells over to Slurm: collected into arrays, submitted in waves as its queue has room."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kharness.matrix.launchers._slurm_arrays import (
    Array,
    TaskCells,
    TaskRequest,
    folder_of,
    name_and_index,
)
from kharness.matrix.launchers._slurm_calls import Answer, Row, SlurmAway, sbatch, squeue
from kharness.matrix.launchers._slurm_jobs import ASK_EVERY, ASK_SELDOM, KnownJob, KnownJobs
from kharness.matrix.launchers._slurm_limits import ClusterLimits, read_limits
from kharness.runs.exit_codes import REFUSED
from kharness.runs.launch import Exit, Launch, Slot
from monitoring.counts import counted


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

    def __init__(
        self,
        jobs: KnownJobs,
        request: Callable[[Launch, ClusterLimits], TaskRequest],
        of_task: TaskCells,
        *,
        at_once: int,
    ) -> None:
        """`at_once` is how many tasks run at a time, over all arrays; 0 for as many as Slurm allows."""
        self._jobs, self._request, self._of_task, self._at_once = jobs, request, of_task, at_once
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
        request = self._request(launch, self._limits)
        array = self._open.get(request)
        if array is not None and (
            array.folder != folder_of(launch)
            or (len(array.tasks) >= self._limits.array_size and array.needs_task(launch))
        ):
            self._close(array)
            array = None
        if array is None:
            array = self._open[request] = Array.begin(launch, request, self._of_task)
        id = array.add(launch, slot)
        self._jobs.add(KnownJob(id, launch, array))
        return id

    def close_arrays(self) -> None:
        """No further cell belongs to what was collected so far."""
        for array in self._open.values():
            self._close(array)
        self._open.clear()

    def submit(self) -> bool:
        """Submit what there is room for; returns whether Slurm has all of it."""
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
        """Submit nothing of it."""
        self._open.clear()
        self._waves.clear()

    def _close(self, array: Array) -> None:
        array.write()
        self._waves.append(Wave(array, 0, len(array.tasks) - 1))

    def _submit_waves(self) -> None:
        while self._waves:
            wave = self._waves[0]
            if wave.in_doubt and self._has_arrived(wave):
                continue
            after = self._arrays[-1] if self._at_once and self._arrays else ""
            excluded = self._jobs.bad_nodes
            arguments = wave.array.arguments(wave.first, wave.last, at_once=self._at_once, after=after)
            answer, said = sbatch([*([f"--exclude={','.join(excluded)}"] if excluded else []), *arguments])
            if answer is Answer.TAKEN:
                self._taken(wave, said)
            elif answer is Answer.REFUSED:
                self._waves.pop(0)
                self._refused(wave, said)
            elif answer is Answer.FULL and wave.last > wave.first:
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
