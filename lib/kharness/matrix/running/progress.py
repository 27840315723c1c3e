"""Progress of a matrix while runs train: a table redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from kharness.config.output import fitted
from kharness.matrix.running.alike import words_of
from kharness.matrix.running.durations import time_left
from kharness.matrix.running.execute import ActiveRun, Outcome
from kharness.matrix.running.protocols import DRAW_EVERY
from kharness.matrix.running.table import LiveTable, Row, duration
from kharness.runs.budget import spent
from kharness.runs.exit_codes import OUT_OF_MEMORY
from kharness.runs.files import OUTPUT_LOG
from kharness.runs.launch import Launch, Slot
from kharness.runs.status import COMPLETE, INTERRUPTED, QUEUED
from monitoring.counts import counted
from monitoring.errors import moves_cursor

# Seconds between two plain lines about runs that take long.
PLAIN_EVERY = 60.0
# So many runs are named in a plain line.
PLAIN_RUNS = 3
# Runs in the queue of a scheduler are shown beside others up to so many.
SHOWN_QUEUED = 3


class MatrixProgress:
    """Totals, the running ones with step, loss and pace, and the time left once something is measured."""

    def __init__(
        self, stream: TextIO, num_runs: int | None, *, expected: Mapping[str, float] | None = None
    ) -> None:
        """`num_runs` is None where it is not known; `expected` has seconds by name, from earlier runs."""
        self._stream = stream
        self._table = LiveTable(stream) if moves_cursor(stream) else None
        self._num_runs = num_runs
        self._expected = dict(expected or {})
        self._seconds: list[float] = []
        self._num_done = 0
        self._num_bad = 0
        self._numbers: dict[str, int] = {}
        """Numbers of runs by name, in the order of their first start."""
        self._told: set[str] = set()
        """The ends of output of runs that failed: one that others have too is shown once."""
        self._next = 0.0
        self._next_plain = time.monotonic() + PLAIN_EVERY

    def say(self, line: str) -> None:
        """Print a line that stays above the table."""
        if self._table is not None:
            self._table.say(fitted(line))
        else:
            self._stream.write(f"{fitted(line)}\n")
            self._stream.flush()

    def started(self, run: ActiveRun) -> None:
        name = run.launch.name
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        if self._table is None:  # which shows it
            again = f", attempt {run.number}" if run.number > 1 else ""
            self.say(f"[{number}/{self._total}] {name}{again}")

    def ended(self, run: ActiveRun, outcome: Outcome, *, again: bool = False) -> None:
        """Return how the run ended; for a failed one also its log and the end of its output."""
        if outcome.status == COMPLETE:
            self._seconds.append(outcome.seconds)
            loss = "" if run.state.train_loss is None else f", loss {run.state.train_loss:.4f}"
            done = spent({}, run.state.end).steps  # the last step is one less where a program counts from 0
            steps = f"{counted(done or run.state.step or 0, 'step')} in {duration(outcome.seconds)}"
            self._say_end(run.launch, f"complete: {steps}{loss}", done=True)
            return
        log = f"{run.launch.shown_directory}/{OUTPUT_LOG}"
        self._num_bad += not again
        what = f"{outcome.status}: {outcome.attempt.reason} ({duration(outcome.seconds)}); see {log}"
        self._say_end(run.launch, what, done=not again)
        if outcome.status != INTERRUPTED:
            tail = run.output_tail()
            words = words_of("\n".join(tail), run.launch)
            for line in [] if words in self._told else tail:
                self.say(f"  | {line}")
            self._told.add(words)
        if again:
            alone = ", alone" if outcome.attempt.cause == OUT_OF_MEMORY else ""
            self.say(f"  {run.launch.name} is tried again{alone}")

    def not_started(self, launch: Launch, outcome: Outcome) -> None:
        self._num_bad += 1
        self._say_end(launch, f"{outcome.status}: {outcome.attempt.reason}", done=True)

    def update(self, running: Sequence[ActiveRun], num_waiting: int | None) -> None:
        """Look at the journals and draw, if it is time to."""
        now = time.monotonic()
        if now < (self._next if self._table else self._next_plain):
            return
        self._next, self._next_plain = now + DRAW_EVERY, now + PLAIN_EVERY
        begun = [run for run in running if not run.waits]
        queued = [run for run in running if run.waits]
        for run in begun:
            run.read()
        if num_waiting is not None:
            num_waiting += len(queued)
        totals = self._totals(begun, num_waiting)
        shown = [*begun, *queued[: max(0, SHOWN_QUEUED - len(begun))]]
        if self._table is not None:
            self._table.draw([_row(run) for run in shown], totals)
        else:
            self.say(_plain_line(shown, totals))

    def close(self) -> None:
        if self._table is not None:
            self._table.close()

    @property
    def _total(self) -> str:
        return "?" if self._num_runs is None else str(self._num_runs)

    def _say_end(self, launch: Launch, what: str, *, done: bool) -> None:
        self._num_done += done
        number = f"[{self._num_done}/{self._total}] " if self._table else "  "
        self.say(f"{number}{launch.name}: {what}")

    def _totals(self, running: Sequence[ActiveRun], num_waiting: int | None) -> str:
        parts = [f"{self._num_done}/{self._total} done"]
        if self._num_bad:
            parts.append(f"{self._num_bad} not complete")
        parts.append(f"{len(running)} running")
        if num_waiting:
            parts.append(f"{num_waiting} waiting")
        if (left := self._seconds_left(running, num_waiting)) is not None:
            parts.append(f"ETA {duration(left)}")
        return "  ".join(parts)

    def _seconds_left(self, running: Sequence[ActiveRun], num_waiting: int | None) -> float | None:
        """Judge by the pace of the running ones, and how long runs took in this matrix or in earlier ones."""
        if num_waiting is None or not (running or self._seconds):  # nobody knows when a queue moves
            return None
        left = [self._run_seconds_left(run) for run in running]
        lengths = self._seconds or [
            run.seconds + seconds for run, seconds in zip(running, left, strict=True) if seconds is not None
        ]
        waiting: list[float | None] = [
            seconds for name, seconds in self._expected.items() if name not in self._numbers
        ]
        waiting += [None] * (num_waiting - len(waiting))
        typical = sum(lengths) / len(lengths) if lengths else None
        return time_left(left, waiting[:num_waiting], jobs=max(1, len(running)), typical=typical)

    def _run_seconds_left(self, run: ActiveRun) -> float | None:
        if run.state.seconds_left is not None or run.launch.name not in self._expected:
            return run.state.seconds_left
        return max(0.0, self._expected[run.launch.name] - run.seconds)


def _row(run: ActiveRun) -> Row:
    """Return what the table shows of a run; one that takes no steps says its phase instead of numbers."""
    state, doing = run.state, _doing(run)
    eta = "" if state.seconds_left is None else duration(state.seconds_left)
    return run.launch.name, {
        "step": f"{state.step}/{state.num_steps or '?'}" if state.step else doing,
        "loss": "" if state.train_loss is None else f"{state.train_loss:.4f}",
        "ETA": doing if state.step and doing else eta,
        "steps/s": "" if state.steps_per_second is None else f"{state.steps_per_second:.3g}",
        "on": _place(run.slot),
    }


def _doing(run: ActiveRun) -> str:
    """Return the phase of a run that takes no steps now; empty for one that does."""
    if run.stop_asked is not None:
        return "stopping"
    if run.waits:
        return f"{QUEUED}: {run.waiting}" if run.waiting else QUEUED
    if run.state.end:
        return "ending"
    if not run.state.step:
        return "preparing" if run.state.start else "starting"
    return ""


def _place(slot: Slot) -> str:
    """`gpu 0,1` or `cpu 0-3`; empty where the run has the entire machine."""
    if slot.gpus:
        return "gpu " + ",".join(gpu if gpu.isdigit() else gpu.removeprefix("GPU-")[:8] for gpu in slot.gpus)
    if not slot.cores:
        return f"{slot.threads} threads" if slot.threads else ""
    cores = sorted(slot.cores)
    whole = len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1
    return "cpu " + (f"{cores[0]}-{cores[-1]}" if whole else ",".join(map(str, cores)))


def _plain_line(running: Sequence[ActiveRun], totals: str) -> str:
    parts = [totals, *(_plain_run(run) for run in running[:PLAIN_RUNS])]
    if len(running) > PLAIN_RUNS:
        parts.append(f"and {len(running) - PLAIN_RUNS} more")
    return "  ".join(parts)


def _plain_run(run: ActiveRun) -> str:
    state = run.state
    if not state.step:
        return f"{run.launch.name} {_doing(run)}"
    loss = "" if state.train_loss is None else f" loss {state.train_loss:.4f}"
    return f"{run.launch.name} step {state.step}/{state.num_steps or '?'}{loss}"
