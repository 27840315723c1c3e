"""State of a matrix from its files alone: cells by status, what is running, what failed and why."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.config.make.typed import typed, typed_setting
from kharness.config.writing import on_one_line
from kharness.matrix.running.alike import FIRST, failure
from kharness.matrix.running.durations import time_left
from kharness.matrix.running.table import duration
from kharness.matrix.selected_runs import Member, SelectedRuns
from kharness.runs.causes import DETERMINISTIC
from kharness.runs.errors import MatrixError
from kharness.runs.exit_codes import IN_WORDS, STOPPED_EARLY
from kharness.runs.files import STATUS_JSON
from kharness.runs.launch import Job, Launch
from kharness.runs.lock import LockHolder, holder
from kharness.runs.matrix_plan import has_other_sources
from kharness.runs.standing import closed, standing
from kharness.runs.status import (
    COMPLETE,
    FAILED,
    INTERRUPTED,
    KILLED,
    PENDING,
    QUEUED,
    RUNNING,
    SILENT,
    TIMEOUT,
    UNREADABLE,
    Attempt,
    RunStatus,
    failed_before,
    resumed_words,
)
from monitoring.agent.progress import read_progress
from monitoring.alert_sentences import alert_lines
from monitoring.counts import counted
from monitoring.journal.files import FOLLOWERS_JSON, JOURNAL
from monitoring.journal.records import MEASURING, Record, read_records
from monitoring.journal.run_state import RunState, read_end

# So many lines of each kind are shown; a count gives the rest.
MOST_LINES = 20


@dataclass(frozen=True)
class CellState:
    """One cell as its files show it."""

    member: Member
    status: RunStatus
    state: RunState | None
    """State at the end of its journal, where that was read."""
    is_alone: bool = False
    """Whether its training was started without make, and runs."""
    lives_on: bool = False
    """Whether it runs, or waits in the queue of a scheduler, without a runner; for a matrix that has none."""
    waiting: str = ""
    """Why it waits, as the scheduler says now."""

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def directory(self) -> Path:
        return self.member.launch.directory

    @property
    def last(self) -> Attempt | None:
        return self.status.last

    @property
    def cause(self) -> str:
        return (self.last.cause if self.last else None) or ""

    @property
    def seconds(self) -> float:
        """Wall time of its attempts where known: not of a running one, nor where the clock was set back."""
        ended = [(one.started, one.ended) for one in self.status.attempts if one.ended is not None]
        return sum(max(0.0, end - start) for start, end in ended)

    @property
    def seconds_in_the_end(self) -> float | None:
        """Expected total seconds of a running cell, at its present pace."""
        if self.last is None or self.state is None or self.state.seconds_left is None:
            return None
        running = max(0.0, time.time() - self.last.started)  # the clock may have been set back
        return self.seconds + running + self.state.seconds_left

    @property
    def fraction_left(self) -> float:
        """Fraction of its steps left; 1 where nothing is known."""
        if self.status.status == COMPLETE:
            return 0.0
        if self.state is None or self.state.step is None or not self.state.num_steps:
            return 1.0
        return max(0.0, 1 - self.state.step / self.state.num_steps)


@dataclass(frozen=True)
class Overview:
    """All chosen cells of a matrix, or the one run."""

    found: SelectedRuns
    cells: Sequence[CellState]
    holder: LockHolder | None
    """Who runs it now."""

    def having(self, *statuses: str) -> list[CellState]:
        return [cell for cell in self.cells if cell.status.status in statuses]

    @property
    def to_choose(self) -> int:
        """Trials that a search has still to choose; none for some of its cells alone."""
        return self.found.to_choose if len(self.cells) == len(self.found.members) else 0

    @property
    def unfinished(self) -> list[CellState]:
        """Return the cells that still need time, started or not."""
        return [cell for cell in self.cells if cell.status.status != COMPLETE and cell.cause != STOPPED_EARLY]

    @property
    def continuable(self) -> list[CellState]:
        """Cells that `make continue` would run: neither those that would only fail again, nor those still
        running.
        """
        return [cell for cell in self.unfinished if cell.cause not in DETERMINISTIC and not cell.lives_on]

    @property
    def typical(self) -> float | None:
        """Return the mean seconds of complete cells, or the expected seconds of running ones."""
        seconds = [cell.seconds for cell in self.having(COMPLETE)]
        if not seconds and self.holder is not None:
            whole = [cell.seconds_in_the_end for cell in self.having(RUNNING)]
            seconds = [one for one in whole if one is not None]
        return sum(seconds) / len(seconds) if seconds else None

    def seconds_left(self, jobs: int, expected: Mapping[str, float], *, more: int = 0) -> float | None:
        """Until all cells and `more` that are yet to be chosen are complete, `jobs` at once.

        None where the time of a cell is unknown.
        """
        running = self.having(RUNNING) if self.holder else []
        left = [self._cell_left(cell, expected) for cell in running]
        waiting = [self._cell_left(cell, expected) for cell in self.unfinished if cell not in running]
        waiting += [self.typical] * more
        return time_left(left, waiting, jobs=max(jobs, len(running), 1))

    def _cell_left(self, cell: CellState, expected: Mapping[str, float]) -> float | None:
        """At its own pace if it has one, else the part that is left of what such a cell takes."""
        if cell.state is not None and cell.state.seconds_left is not None:
            return cell.state.seconds_left
        whole = expected.get(cell.name) or self.typical
        return None if whole is None else whole * cell.fraction_left


def look(found: SelectedRuns, *, half_done: bool = False) -> Overview:
    """Read status.json of every chosen cell, and the end of the journals of running ones.

    `half_done` also of those that have begun and do not run now.
    """
    cells = [_read(member, half_done) for member in found.meant]
    held_by = holder(found.directory)
    return Overview(found, cells if held_by else _with_living(found, cells), held_by)


def seconds_to_go(
    found: SelectedRuns,
    launches: Sequence[Launch],
    expected: Mapping[str, float],
    *,
    jobs: int,
    more: int = 0,
) -> float | None:
    """Seconds that these runs take from where they stand, and `more` trials that are yet to be chosen."""
    overview = look(found, half_done=True)
    names = {launch.name for launch in launches}
    telling = [cell for cell in overview.cells if cell.name in names or cell.status.status == COMPLETE]
    return replace(overview, cells=telling, holder=None).seconds_left(jobs, expected, more=more)


def _with_living(found: SelectedRuns, cells: Sequence[CellState]) -> list[CellState]:
    """Say which of them live on without their runner: of jobs each scheduler is asked once for all."""
    found_cells = [replace(cell, lives_on=cell.status.status == RUNNING) for cell in cells]
    pairs = {
        place: (cell.member.launch, Job(**cell.last.job))
        for place, cell in enumerate(cells)
        if cell.status.status in (RUNNING, SILENT, QUEUED) and cell.last is not None and cell.last.job
        # A job of a scheduler has no process of this host; whether a local one lives, its files have already
        # said.
        if cell.last.job.get("pid") is None
    }
    if not pairs:
        return found_cells
    from kharness.matrix.launchers import jobs_of  # most looks need none

    try:
        alive, _ = jobs_of(list(pairs.values()), found.settings)
    except MatrixError:  # not a host from which the scheduler can be asked: what the files say stands
        alive = {(job.launcher, job.id): "" for _, job in pairs.values()}
    for place, (launch, job) in pairs.items():
        cell, why = cells[place], alive.get((job.launcher, job.id))
        if why is not None:
            found_cells[place] = replace(cell, lives_on=True, waiting=why)
        elif cell.status.status != QUEUED:
            status = closed(launch.directory, cell.status, launch.asked)
            found_cells[place] = replace(cell, status=status, lives_on=False)
    return found_cells


def status_lines(overview: Overview, shown: str) -> list[str]:
    """Return the lines of `make status`."""
    to_choose = f"; {counted(overview.to_choose, 'more trial')} to be chosen" if overview.to_choose else ""
    lines = [
        _headline(overview, shown),
        _counts(overview.cells) + to_choose,
        *_some([_running_line(cell) for cell in overview.having(RUNNING, SILENT)]),
        *_some([_queued_line(cell, overview.holder) for cell in overview.having(QUEUED)]),
        *_some(_bad_lines(overview)),
        *_held_back_lines(overview),
        *_some([_again_line(cell) for cell in overview.having(COMPLETE) if len(cell.status.attempts) > 1]),
        *_some(_sources_lines(overview)),
        *_some([line for cell in overview.cells for line in _refused_lines(cell)]),
        *_some([f"  {line}" for line in alert_lines([cell.directory for cell in overview.cells])]),
        *_time_line(overview),
    ]
    return [on_one_line(line) for line in lines]


def _headline(overview: Overview, shown: str) -> str:
    found = overview.found
    what = f"{found.kind} {shown}"
    if overview.holder is not None:
        since = time.strftime("%H:%M:%S", time.localtime(overview.holder.started))
        return f"{what}: run by {overview.holder} since {since}"
    if not overview.unfinished and not overview.to_choose:
        return f"{what}: complete"
    if overview.continuable and not found.is_startable:
        return f"{what}: not running; its program, started again, goes on with it"
    if overview.continuable or overview.to_choose:
        return f"{what}: not running; resume with: {typed('continue', shown)}"
    if alive := [cell for cell in overview.unfinished if cell.lives_on]:
        if all(cell.is_alone for cell in alive):
            return f"{what}: running, started without {typed_setting('make', 'kharness')}"
        in_queue = [cell for cell in alive if cell.status.status == QUEUED]
        if all(map(_on_cluster, alive)):
            waiting = f", {len(in_queue)} of them waiting" if in_queue else ""
            begun = f"{counted(len(alive), 'run')} in the hands of the scheduler{waiting}"
            return f"{what}: {begun}; watch on with: {typed('continue', shown)}"
        return f"{what}: its runner is gone; {counted(len(alive), 'run')} still running"
    return f"{what}: ended; retry the failed runs with: {typed('test_rerun', shown, 'TARGET')}"


def _counts(cells: Sequence[CellState]) -> str:
    counts: Counter[str] = Counter()
    for cell in cells:
        cause = cell.cause if cell.status.status in (FAILED, KILLED, INTERRUPTED) else ""
        counts[f"{cell.status.status} ({cause})" if cause else cell.status.status] += 1
    # a stable order: as a cell goes through them
    order = (
        *(COMPLETE, RUNNING, SILENT, QUEUED, PENDING, INTERRUPTED, TIMEOUT, KILLED, FAILED),
        UNREADABLE,
    )
    parts = sorted(counts.items(), key=lambda item: (order.index(item[0].split()[0]), item[0]))
    runs = counted(len(cells), "run")
    return f"{runs}: {', '.join(f'{count} {what}' for what, count in parts)}" if parts else runs


def _running_line(cell: CellState) -> str:
    state = cell.state
    if state is None or not state.step:
        return f"  {cell.name}: starting{_where(cell)}"
    parts = [f"step {state.step}/{state.num_steps or '?'}"]
    if state.train_loss is not None:
        parts.append(f"loss {state.train_loss:.4f}")
    if state.steps_per_second is not None:
        parts.append(f"{state.steps_per_second:.3g} steps/s")
    if state.seconds_left is not None:
        parts.append(f"ETA {duration(state.seconds_left)}")
    if cell.status.status == SILENT and state.last_time is not None:
        parts.append(f"no record for {duration(max(0.0, time.time() - state.last_time))}")
    return f"  {cell.name}: " + "  ".join(parts) + _where(cell)


def _on_cluster(cell: CellState) -> bool:
    """Whether its job goes on without a runner."""
    return cell.lives_on and cell.last is not None and (cell.last.job or {}).get("pid") is None


def _where(cell: CellState) -> str:
    """The node of a cluster, or another host; empty for this machine."""
    job = (cell.last.job if cell.last else None) or {}
    is_away = job.get("pid", 0) is None or cell.status.status == SILENT
    return f"  on {job['host']}" if is_away and job.get("host") else ""


def _queued_line(cell: CellState, held_by: LockHolder | None) -> str:
    if held_by is None and not cell.lives_on:
        return f"  {cell.name}: was in the queue when its runner died, and is not any more"
    waiting = cell.waiting or (cell.last.waiting if cell.last else None)
    return f"  {cell.name}: queued" + (f": {waiting}" if waiting else "")


def _bad_lines(overview: Overview) -> list[str]:
    """A line for each that is not complete; those that have failed alike share the first one's."""
    alike: dict[tuple[object, ...], list[CellState]] = {}
    quarantine = overview.found.quarantine
    for cell in overview.having(INTERRUPTED, TIMEOUT, KILLED, FAILED, UNREADABLE):
        is_one = cell.status.status == FAILED and cell.name not in quarantine
        alike.setdefault(_failure(cell) if is_one else (cell.name,), []).append(cell)
    return [_bad_line(cells, quarantine) for cells in alike.values()]


def _bad_line(cells: Sequence[CellState], quarantine: Mapping[str, str]) -> str:
    """The line of the first of some that have ended alike."""
    cell = cells[0]
    reason = (cell.last.reason if cell.last else None) or "reason unknown"
    attempts = max(len(one.status.attempts) for one in cells)
    more = f", {attempts} attempts" if attempts > 1 else ""
    known = quarantine.get(cell.name)
    excuse = f" (known: {known})" if known else ""
    alike = f" and {counted(len(cells) - 1, 'other')} alike" if cells[1:] else ""
    return f"  {cell.name}{alike}: {cell.status.status}{more}: {reason}{excuse}"


def _failure(cell: CellState) -> tuple[int | None, str]:
    return failure(cell.last, cell.member.launch) if cell.last else (None, "")


def _held_back_lines(overview: Overview) -> list[str]:
    """Why cells wait that nobody runs: the first ones have failed alike."""
    most = overview.found.settings.get("MATRIX_ALIKE", 0)
    waiting, failed = overview.having(PENDING), overview.having(FAILED)
    is_all = len(waiting) + len(failed) == len(overview.cells)
    if not most or overview.holder is not None or not waiting or not is_all:
        return []
    if len(failed) < FIRST or len({_failure(cell) for cell in failed}) > 1:
        return []
    return [f"  not started, since the first {len(failed)} failed alike: {counted(len(waiting), 'run')}"]


def _again_line(cell: CellState) -> str:
    """Say where a complete run of several attempts went on, and what had ended those before."""
    attempts = cell.status.attempts
    causes = dict.fromkeys(one.cause for one in attempts[:-1] if one.cause)
    before = ", ".join(IN_WORDS.get(cause, cause) for cause in causes)
    parts = [resumed_words(_start_of_last(cell)), f"after {before}" if before else ""]
    unstable = ", unstable" if failed_before(attempts) else ""
    went_on = " ".join(filter(None, [*parts, f"(attempt {len(attempts)})"]))
    return f"  {cell.name}: complete{unstable}, {went_on}"


def _start_of_last(cell: CellState) -> Mapping[str, object]:
    """Return the newest start record of the last attempt: a program's first step may have written another."""
    found: Record = {}
    for record, _ in read_records(cell.directory / JOURNAL, cell.last.journal_offset if cell.last else 0):
        if record.get("event") == "start":
            found = record
        elif found and record.get("event") in MEASURING:
            break
    return found


def _sources_lines(overview: Overview) -> list[str]:
    begun = [cell for cell in overview.cells if cell.status.attempts]
    other = [cell for cell in begun if has_other_sources(cell.directory, overview.found.code)]
    return [f"  {cell.name}: began with other sources than the matrix was planned with" for cell in other]


def _refused_lines(cell: CellState) -> list[str]:
    """The records of it that trackers have skipped."""
    if cell.status.status == PENDING or not os.path.exists(os.path.join(cell.directory, FOLLOWERS_JSON)):
        return []
    return [
        f"  {cell.name}: {name} refused {counted(progress.refused, 'record')}, last {progress.refusal}"
        for name, progress in read_progress(cell.directory).items()
        if progress.refused
    ]


def _time_line(overview: Overview) -> list[str]:
    if overview.holder is None or not overview.unfinished:
        return []
    left = overview.seconds_left(len(overview.having(RUNNING)), {})
    return [] if left is None else [f"time left: about {duration(left)}"]


def _some(lines: Sequence[str]) -> list[str]:
    more = [f"  … and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return [*lines[:MOST_LINES], *more]


def _read(member: Member, half_done: bool) -> CellState:
    directory: Path = member.launch.directory
    status = standing(directory, member.launch.asked)
    is_alone = status.status == RUNNING and not os.path.exists(os.path.join(directory, STATUS_JSON))
    state = None
    if status.status in (RUNNING, SILENT) or (half_done and status.status not in (COMPLETE, PENDING)):
        # where the records of its lineage begin: its own if it is from scratch
        begins = status.last.journal_offset if status.last and status.last.from_scratch else 0
        state = read_end(directory / JOURNAL, since=begins)
    return CellState(member, status, state, is_alone)


def estimate_lines(overview: Overview, expected: Mapping[str, float], jobs: int) -> list[str]:
    """Return the lines of `make estimate`."""
    unfinished = overview.unfinished
    typical = overview.typical
    done = f"complete: {len(overview.having(COMPLETE))} of {counted(len(overview.cells), 'run')}"
    lines = [done + ("" if typical is None else f", {duration(typical)} each")]
    if not unfinished:
        return [*lines, "nothing is left"]
    half = [cell for cell in unfinished if 0 < cell.fraction_left < 1]
    if half:
        steps = sum(1 - cell.fraction_left for cell in half) / len(half)
        lines.append(f"half done: {len(half)}, {steps:.0%} of their steps on average")
    left = overview.seconds_left(jobs, expected)
    if left is None:
        return [*lines, "time left: not known until a run has taken some steps"]
    return [*lines, f"time left: about {duration(left)} with {jobs} at once"]
