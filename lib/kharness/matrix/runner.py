"""Runs the cells of a matrix, or a single training, and survives whatever becomes of them."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from kharness.matrix.execute import ActiveRun, Outcome
from kharness.matrix.launch import OUTPUT_LOG, Launch, Launcher, Slot
from kharness.matrix.progress import DRAW_EVERY, Progress
from kharness.matrix.signals import Signals


def run_all(
    launches: Sequence[Launch], launcher: Launcher, signals: Signals, progress: Progress, *, jobs: int = 1
) -> dict[str, Outcome]:
    """Run each launch as a process of its own, `jobs` at once; one that fails takes no other along.

    The first request to stop is passed on to the running ones and nothing more is started; the second
    kills them. Returns the outcomes of those that were started, by name.
    """
    waiting = deque(launches)
    running: list[ActiveRun] = []
    outcomes: dict[str, Outcome] = {}
    stopper = Stopper(signals, progress.say)
    while running or (waiting and not signals.stops):
        while waiting and len(running) < jobs and not signals.stops:
            run = ActiveRun(waiting.popleft(), launcher, Slot())
            running.append(run)
            progress.started(run, len(outcomes) + len(running))
        stopper.pass_on(running)
        progress.update(running, len(waiting))
        signals.wait(DRAW_EVERY)
        for run in running[:]:
            outcome = run.poll()
            if outcome is not None:
                running.remove(run)
                outcomes[run.launch.name] = outcome
                progress.ended(run, outcome)
    progress.close()
    return outcomes


def run_one(
    launch: Launch, launcher: Launcher, signals: Signals, output: BinaryIO, say: Callable[[str], None]
) -> Outcome:
    """Run one launch and pass what it prints on to `output`, while it prints it."""
    run = ActiveRun(launch, launcher, Slot())
    stopper = Stopper(signals, say)
    with Copier(launch.directory / OUTPUT_LOG, output) as copier:
        while True:
            stopper.pass_on([run])
            outcome = run.poll()
            copier.copy()
            if outcome is not None:
                return outcome
            signals.wait(0.1)


class Stopper:
    """Passes requests to stop on to the runs: the first politely, the second at once."""

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
                run.kill()
            return
        name = signal.Signals(self._signals.stops[0]).name
        self._say(f"{name}: stopping after the current step, with everything saved; once more kills at once")
        for run in running:
            run.stop()


class Copier:
    """Copies what is appended to a file."""

    def __init__(self, path: Path, output: BinaryIO) -> None:
        self._path = path
        self._output = output

    def __enter__(self) -> Copier:
        self._file = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def copy(self) -> None:
        new = self._file.read()
        if new:
            self._output.write(new)
            self._output.flush()
