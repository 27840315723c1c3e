"""Run the cells of a matrix, or a single training, and survive their failures."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

from kharness.config.values import whole
from kharness.matrix.launchers import Guarded
from kharness.matrix.running.alike import FirstFailures
from kharness.matrix.running.execute import ActiveRun, NotStarted, Outcome
from kharness.matrix.running.printed_run import PrintedRun
from kharness.matrix.running.protocols import DRAW_EVERY, RunnerView, Source, Watcher
from kharness.matrix.running.signals import Signals
from kharness.runs.causes import FREE, RETRYABLE, Stop
from kharness.runs.command import CommandLaunch
from kharness.runs.exit_codes import NODE_FAILED, OUT_OF_MEMORY, STOPPED, STOPPED_EARLY, TIMED_OUT
from kharness.runs.files import STATUS_JSON
from kharness.runs.jobs.job_file import attempts_without_step
from kharness.runs.launch import Launch, Slot
from kharness.runs.status import COMPLETE, RunStatus
from monitoring.host.other_work import MachineWork

if TYPE_CHECKING:  # for which a single run does not wait
    from kharness.matrix.machine.resources import Elsewhere, MachineResources

# Seconds that a training has to save, when the runner asks it to stop, before it is killed.
STOP_GRACE = 30.0
# Seconds between two looks at what a single run prints: on a terminal in its first ones, and else.
LOOK_EVERY, COPY_EVERY, FIRST = 0.1, 0.5, 60.0
# Seconds between two looks of the watcher.
WATCH_EVERY = 1.0
# A cell that ran out of memory gets another chance alone, when the others are done.
ALONE = frozenset({OUT_OF_MEMORY})

BY_HAND = Stop(STOPPED)


# Questions to launchers may take this share of the time, and an end is noticed within so many seconds.
QUESTION_SHARE = 0.05
LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Limits:
    """Limits on attempts and failures of a matrix (MATRIX_TIMEOUT and the like)."""

    timeout: float = 0.0
    """Seconds of one attempt; 0 for none."""
    retries: int = 0
    """Further attempts after a cause that a retry can fix."""
    keep_going: bool = True
    """Start others after one has failed."""
    excused: frozenset[str] = frozenset()
    """Names whose failure is expected, so that it stops nothing."""
    detach: bool = False
    """Leave once a scheduler has all of it."""
    alike: int = 0
    """Start no other once so many first ones have failed alike; 0 for always going on."""

    @classmethod
    def read(cls, settings: Mapping[str, object], excused: Sequence[str] = ()) -> Limits:
        """Read MATRIX_TIMEOUT, MATRIX_RETRIES, MATRIX_KEEP_GOING, MATRIX_DETACH and MATRIX_ALIKE."""
        return cls(
            whole(settings, "MATRIX_TIMEOUT"),
            whole(settings, "MATRIX_RETRIES", 1),
            bool(settings.get("MATRIX_KEEP_GOING", True)),
            frozenset(excused),
            bool(settings.get("MATRIX_DETACH", False)),
            whole(settings, "MATRIX_ALIKE"),
        )


class Detached(Exception):
    """The runner has left, and a scheduler has all that is not complete."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{len(names)} jobs")
        self.names = names


@dataclass
class Runner:
    """Runs what a source hands out, as many at once as there is room for; a failure takes no other along."""

    source: Source
    launcher: Guarded
    resources: MachineResources | Elsewhere
    signals: Signals
    progress: RunnerView
    limits: Limits = Limits()
    watcher: Watcher | None = None
    adopted: Sequence[tuple[Launch, RunStatus]] = ()
    """Those whose jobs an earlier runner has given to a scheduler."""
    machine: MachineWork = field(default_factory=lambda: MachineWork(os.getpid()))
    running: list[ActiveRun] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    stopping: bool = False
    """Whether a failure has ended the starting of others."""
    _held: Launch | None = None
    _retries: deque[Launch] = field(default_factory=deque)
    _alone: deque[Launch] = field(default_factory=deque)
    _alone_runs: Launch | None = None
    _tried: dict[str, int] = field(default_factory=dict)
    _unwritten: list[ActiveRun] = field(default_factory=list)
    """Ended ones whose status.json a full disk did not take."""
    _next_watch: float = 0.0
    _begun: dict[str, int] = field(default_factory=dict)
    """The number of the attempt that was last said to have begun, by name."""

    def __post_init__(self) -> None:
        self._schedules = self.launcher.schedules
        self._pace, self._free = PollPace(), FreeAttempts()
        self._first_failures = FirstFailures(self.limits.alike)
        for launch, status in self.adopted:
            run = ActiveRun(launch, self.launcher, Slot(threads=launch.threads), adopted=status)
            self.running.append(run)
            self._tried[launch.name] = 1

    def run(self) -> dict[str, Outcome]:
        """Return the last outcome of each that was started, by name, when nothing runs any more.

        The first request to stop is passed on to the running ones and nothing more is started; the second
        kills them. Detached where the runner is to leave, or has lost its terminal; MatrixError where no job
        can run, as the first ones showed.
        """
        stopper = Stopper(self.signals, self.progress.say)
        while True:
            waits = self._start()
            handed_over = self.launcher.flush()
            if not self.running and not waits:
                break
            if handed_over and self._may_leave():
                self.progress.close()
                raise Detached([run.launch.name for run in self.running])
            stopper.pass_on(self.running)
            self._enforce_timeout()
            self._give_up()
            self.machine.look()
            self.progress.update(self.running, self._num_waiting())
            self.signals.wait(DRAW_EVERY, self.launcher.filenos())
            self._poll()
            self._unwritten = [run for run in self._unwritten if not run.write_end()]
        # A stop may leave retries unstarted: their last outcome stands.
        for launch in (*self._retries, *self._alone):
            self.source.ended(launch, self.outcomes[launch.name])
        self.progress.close()
        if (refusal := self.launcher.refusal()) is not None:
            raise refusal
        return self.outcomes

    def _poll(self) -> None:
        since = self._pace.now()
        # a list of its own, for `_ended` takes runs out of `running`
        for run in self._pace.due(self.running):
            outcome = run.poll()
            if self._schedules and run.place and self._begun.get(run.launch.name) != run.number:
                self._begun[run.launch.name] = run.number
                self.progress.started(run)
            if outcome is not None:
                self._ended(run, outcome)
        self._pace.asked(since)

    def _may_leave(self) -> bool:
        """Whether a scheduler has all that is left, and the terminal is lost or not needed."""
        if not self._schedules or not self.source.done() or self._retries or self._alone:
            return False
        lost = bool(self.signals.stops) and self.signals.stops[0] == signal.SIGHUP
        return lost or (self.limits.detach and not self.signals.stops)

    def _start(self) -> bool:
        """Start runs until there is no room, or nothing to start; returns whether one waits to be started."""
        # While one runs alone nothing is started, unless that one is held itself, still without a slot.
        while not self.signals.stops and not self.stopping and (self._held or self._alone_runs is None):
            # Before a launch is taken from the source: a search that chooses its next trial later knows more.
            if not self.resources.has_room(self.running):
                return not self.source.done()
            self._held = launch = self._held or self._next()
            if launch is None:
                return False
            if not self.launcher.is_ready(launch):
                return True
            slot = self.resources.acquire(launch, self.running)
            if slot is None:  # it keeps its place: smaller cells that overtook it could starve it
                return True
            self._held = None
            try:
                run = ActiveRun(launch, self.launcher, slot, self.machine)
            except NotStarted as error:
                self.resources.release(slot)
                self._alone_runs = None
                self.progress.not_started(launch, error.outcome)
                self._settle(launch, error.outcome)
                continue
            self.running.append(run)
            self._tried[launch.name] = self._tried.get(launch.name, 0) + 1
            if not self._schedules:
                self.progress.started(run)
        return False

    def _next(self) -> Launch | None:
        if self._retries:
            return self._retries.popleft()
        launch = self.source.next()
        if launch is None and self._alone and not self.running:
            launch = self._alone_runs = self._alone.popleft()
        return launch

    def _ended(self, run: ActiveRun, outcome: Outcome) -> None:
        self.running.remove(run)
        self.resources.release(run.slot)
        # A full disk does not lose the outcome: it is written again in each turn of the loop until it fits.
        if not run.write_end():
            self._unwritten.append(run)
            self.progress.say(f"warning: {run.launch.directory}/{STATUS_JSON} cannot be written; retrying")
        # Only one can be running alone, and nothing else was started beside it.
        self._alone_runs = None
        name = run.launch.name
        again = self._may_retry(run, outcome)
        self.progress.ended(run, outcome, again=again)
        if not again:
            self._settle(run.launch, outcome)
            self._stop_if_one(run, outcome)
            return
        # It resumes from its last checkpoint, unless it was to start from scratch and never did.
        launch = replace(run.launch, arguments=()) if run.state.start else run.launch
        (self._alone if outcome.attempt.cause in ALONE else self._retries).append(launch)
        self.outcomes[name] = outcome

    def _may_retry(self, run: ActiveRun, outcome: Outcome) -> bool:
        name, step = run.launch.name, run.state.step or 0
        if outcome.status == COMPLETE or self.signals.stops or self.stopping:
            return False
        # Those that the scheduler itself has started again count, too.
        noted = attempts_without_step(run.launch.directory) if self._schedules else 0
        if noted >= self._free.MOST and outcome.attempt.cause in FREE:
            return False
        if self._schedules and outcome.attempt.cause in FREE and self._free.may_go_on(name, outcome, step):
            self._tried[name] -= 1
            return True
        if outcome.attempt.cause == NODE_FAILED and not run.place:
            self._tried[name] -= 1  # its job was lost with another cell, before its own turn
            return True
        return outcome.attempt.cause in RETRYABLE and self._tried[name] <= self.limits.retries

    def _settle(self, launch: Launch, outcome: Outcome) -> None:
        self.outcomes[launch.name] = outcome
        self.source.ended(launch, outcome)
        bad = outcome.status != COMPLETE and outcome.attempt.cause != STOPPED_EARLY
        if bad and not self.limits.keep_going and launch.name not in self.limits.excused:
            if not self.stopping and not self.signals.stops:
                self.progress.say(f"KEEP_GOING=n: {launch.name} is not complete, so no other is started")
            self.stopping = True

    def _stop_if_one(self, run: ActiveRun, outcome: Outcome) -> None:
        """Start no other where all that have run so far have failed at once, with the same words."""
        if run.launch.name in self.limits.excused:
            return
        if not self._first_failures.are_one(run.launch, outcome, step=run.state.step or 0):
            return
        if not (self.stopping or self.signals.stops or self.source.done()):
            from kharness.config.make.typed import typed
            from kharness.runs.latest import shown

            again = typed("continue", shown(run.launch.directory.parent))
            self.progress.say(
                f"the first {self.limits.alike} runs failed alike, so no other is started. A mistake in the "
                f"command: type it anew; in the program: {again}; none: {again} --keep-going"
            )
        self.stopping = True

    def _enforce_timeout(self) -> None:
        """Ask runs over the time limit to save and stop; kill those that do not within STOP_GRACE."""
        for run in self.running:
            if self.limits.timeout and run.stop_asked is None and run.seconds > self.limits.timeout:
                from kharness.matrix.running.table import duration

                limit = duration(self.limits.timeout)
                self.progress.say(
                    f"{run.launch.name}: over the limit of {limit}, stopping it with a checkpoint"
                )
                run.stop(Stop(TIMED_OUT, f"over the limit of {limit}"))
            # After Ctrl-C the user decides how long to wait: a second one kills.
            by_hand = run.stop_asked == BY_HAND
            if run.seconds_since_stop > STOP_GRACE and not by_hand and not run.kill_asked:
                run.kill()

    def _give_up(self) -> None:
        """Stop the runs that the watcher finds losing."""
        now = time.monotonic()
        if self.watcher is None or now < self._next_watch:
            return
        self._next_watch = now + WATCH_EVERY
        for run in self.running:
            run.read()
        reasons = self.watcher.look(self.running)
        for run in self.running:
            reason = reasons.get(run.launch.name)
            if reason is not None and run.stop_asked is None:
                self.progress.say(f"{run.launch.name}: stopped early: {reason}")
                run.stop(Stop(STOPPED_EARLY, reason))

    def _num_waiting(self) -> int | None:
        waiting = self.source.waiting()
        if waiting is None:
            return None
        return waiting + len(self._retries) + len(self._alone) + (self._held is not None)


class FreeAttempts:
    """Attempts that a scheduler has ended with everything saved: they go on for as long as they get on."""

    MOST = 3
    """Attempts in turn without a new step."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[int, int]] = {}

    def may_go_on(self, name: str, outcome: Outcome, step: int) -> bool:
        """Whether a run is started again that a scheduler has ended after `step`."""
        if outcome.attempt.cause == TIMED_OUT and not outcome.by_scheduler:
            return False
        before, count = self._steps.get(name, (-1, 0))
        count = count + 1 if step == before else 1
        self._steps[name] = step, count
        return count < self.MOST


def run_one(
    launch: Launch, launcher: Guarded, signals: Signals, stream: TextIO, *, begun: RunStatus | None = None
) -> Outcome:
    """Run one launch and pass on what it prints, while it prints it; on a terminal over its progress bar.

    `begun` is the status of one whose first attempt has been started already.
    """
    watched_until = time.monotonic() + FIRST if stream.isatty() else 0.0
    of_us = "" if isinstance(launch, CommandLaunch) else "starting: torch is imported, data is read"
    with PrintedRun(
        launch.directory, stream, is_begun=begun is not None, starting=of_us, signals=signals
    ) as view:
        machine = MachineWork(os.getpid())
        run = ActiveRun(launch, launcher, Slot(), machine, adopted=begun)
        stopper = Stopper(signals, view.say)
        while True:
            launcher.flush()
            stopper.pass_on([run])
            machine.look()
            outcome = run.poll()
            view.look()
            if outcome is not None:
                return outcome
            pause = LOOK_EVERY if time.monotonic() < watched_until else COPY_EVERY
            signals.wait(pause, launcher.filenos())


class Stopper:
    """Passes requests to stop on to the runs: the first as a request to save, the second as SIGKILL."""

    def __init__(self, signals: Signals, say: Callable[[str], None]) -> None:
        self._signals = signals
        self._say = say
        self._passed_on = 0

    def pass_on(self, running: Sequence[ActiveRun]) -> None:
        asked = min(2, len(self._signals.stops))
        if asked == self._passed_on or not running:
            return
        self._passed_on = asked
        if asked == 2:
            self._say("killing what runs")
            for run in running:
                run.stop_asked = run.stop_asked or BY_HAND
                run.kill()
            return
        name = signal.Signals(self._signals.stops[0]).name
        self._say(
            f"{name}: stopping after the current step, with everything saved; a second one kills at once"
        )
        for run in running:
            if run.stop_asked is None:
                run.stop(BY_HAND)


class PollPace:
    """Processes of this machine are asked about whenever a signal has come, which costs nothing.

    Of any other launcher it is not known what a question costs. If it runs a program, the end of that is a
    signal that wakes the runner, which would ask again at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def due(self, running: Sequence[ActiveRun]) -> list[ActiveRun]:
        """Those to ask about now."""
        now = self._clock()
        return [run for run in running if run.is_watched or now >= self._next]

    def asked(self, since: float) -> None:
        """A round of questions that began then is over."""
        now = self._clock()
        if now >= self._next:
            self._next = now + min(LONGEST_PAUSE, (now - since) / QUESTION_SHARE)

    def now(self) -> float:
        return self._clock()
