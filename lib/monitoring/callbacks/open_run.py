"""Opens and ends the runs of a framework's callback, one after the other.

A training is a new run, unless it resumes from a checkpoint: then it is the next attempt of the run that
wrote it. Evaluations and other logs belong to the run of the training before them, or to that of the training
that follows; without any training they are a run of their own. A run ends when the next one begins, with its
callback, or with the process, for frameworks call nothing at the very end.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitoring.callbacks.places import (
    OPENING,
    RunPlace,
    joined_place,
    named_directory,
    new_place,
    next_opening,
    resumed_place,
)
from monitoring.errors import RunBusyError
from monitoring.journal.end_status import COMPLETE, INTERRUPTED
from monitoring.journal.files import journal_name
from monitoring.journal.lineage import superseding
from monitoring.journal.records import Record
from monitoring.run import Run

# In the place of a model that a framework does not show.
UNKNOWN_MODEL: Mapping[str, None] = {"name": None, "architecture": None, "parameters": None}

# Training or not, each run of this process that is open, by its directory.
_open_runs: weakref.WeakValueDictionary[Path, OpenRun] = weakref.WeakValueDictionary()
# The directory of the newest run of this process, by the directory that the user named.
_newest: dict[Path, Path] = {}


def directory_of(named: Path) -> Path:
    """Return the directory of the newest run that this process has opened by a name; that itself if none."""
    named = named_directory(named)
    return _newest.get(named, named)


@dataclass
class RunSettings:
    """Settings of a callback for the runs that it opens; the fields are those of Run."""

    directory: Path | None
    name: str | None = None
    project: str | None = None
    trackers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    gpu_monitor: bool | Mapping[str, Any] = False
    agent: bool = True


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that a training resumes from."""

    step: int | None
    """Its step; None where a script counts its steps itself."""
    checkpoint: str | None
    """The name of its file or folder, without those above."""
    is_it: Callable[[Record], bool]
    """Whether a checkpoint record is of it."""


@dataclass(frozen=True)
class Begun:
    """A framework's description of what begins; the fields are those of Run and of its start record."""

    config: Mapping[str, object] = field(default_factory=dict)
    rank: int = 0
    model: Mapping[str, object] = field(default_factory=lambda: UNKNOWN_MODEL)
    training: Mapping[str, object] = field(default_factory=dict)
    fields: Mapping[str, object] = field(default_factory=dict)


class CallbackRuns:
    """Opens the run that what a framework does belongs to; a copy, as in a spawned process, has none."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.current: OpenRun | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"settings": self.settings, "current": None}

    def begin_training(self, begun: Begun, resumed: Resumed | None = None, *, again: bool = False) -> OpenRun:
        """Open the run of a training that begins. Errors: those of Run, before the first step.

        `again` is one that has begun before, in the same call, as with another batch size after an error.
        """
        current = self.current
        if resumed is not None:
            found = self._open_resumed(begun, resumed)
        elif again and current is not None and current.is_training:
            self.close(RuntimeError("the training began again before its end, as with a smaller batch"))
            place = None if begun.rank else RunPlace(current.run.directory, current.number)
            found = self._open(begun, place, again=True)
        elif current is not None and not current.is_training:  # what was measured before belongs to it
            found = current
            found.start(begun)
        else:
            found = self._open_new(begun)
        found.is_training = True
        return found

    def begin_other(self, begun: Begun) -> OpenRun:
        """Return the run of an evaluation, or of anything that is logged outside a training."""
        return self.current or self._open_new(begun)

    def has_any(self) -> bool:
        """Whether the directory that the user named has a run, also of an earlier program."""
        return new_place(self._named()).number > 1

    def close(self, error: BaseException | None = None) -> None:
        """End the current run, if any."""
        if self.current is not None:
            self.current.close(error)
            self.current = None

    def _open_new(self, begun: Begun) -> OpenRun:
        named = self._named()
        while True:
            self.close()
            try:
                return self._open(begun, None if begun.rank else new_place(named))
            except RunBusyError:
                if begun.rank:
                    raise
                # another process has just taken this directory

    def _open_resumed(self, begun: Begun, resumed: Resumed) -> OpenRun:
        self.close()
        if begun.rank:
            return self._open(begun, None, resumed)
        place = resumed_place(self._named(), resumed.is_it, resumed.step)
        if place is not None and (held := _open_runs.get(place.directory)) is not None:
            held.close()  # by another callback of this process, whose training is over
            place = resumed_place(self._named(), resumed.is_it, resumed.step)
        return self._open(begun, place or new_place(self._named()), resumed)

    def _open(
        self, begun: Begun, place: RunPlace | None, resumed: Resumed | None = None, *, again: bool = False
    ) -> OpenRun:
        named = self._named()
        opening = next_opening(named)
        try:
            place = place or joined_place(named, begun.rank, opening)
            found = OpenRun(self.settings, place, begun, opening, owner=self)
        except BaseException:
            next_opening(named, -1)  # there was none
            raise
        if resumed is not None and resumed.step is None:
            resumed = replace(resumed, step=place.step)
        gone = place.supersedes
        if again or (begun.rank and resumed is not None and resumed.step is not None):
            step = resumed.step if resumed is not None and resumed.step is not None else 0
            gone = superseding(place.directory / journal_name(begun.rank), step)
        found.start(begun, resumed, gone)
        self.current = found
        _newest[named] = place.directory
        return found

    def _named(self) -> Path:
        assert self.settings.directory is not None
        return named_directory(self.settings.directory)


class OpenRun:
    """A Run with the end that fits how its training went."""

    def __init__(
        self, settings: RunSettings, place: RunPlace, begun: Begun, opening: int, *, owner: object
    ) -> None:
        """Errors: those of Run. It ends with its owner, if that does not end it."""
        suffix = f"-{place.number}" if place.number > 1 else ""
        named = place.directory.name.removesuffix(suffix)
        self.run = Run(
            place.directory,
            name=f"{settings.name or named}{suffix}",
            project=settings.project or place.directory.parent.name or "runs",
            config=begun.config,
            trackers=settings.trackers,
            gpu_monitor=settings.gpu_monitor,
            agent=settings.agent,
            rank=begun.rank,
            identity={OPENING: opening},
        )
        self.number = place.number
        self.is_training = False
        """Whether a training has begun in it."""
        self.is_trained = False
        """Whether that has gone to its end."""
        self.error: BaseException | None = None
        """The error by which it ended instead."""
        self._at_end: dict[str, object] = {}
        # in a notebook an earlier cell may have left one
        self._error_before = _uncaught()
        self._cancel: list[Callable[[], object]] = [weakref.finalize(owner, self.close).detach]
        if multiprocessing.parent_process() is not None:  # such a process ends without Python's own exit
            self._cancel.append(multiprocessing.util.Finalize(None, self.close, exitpriority=0).cancel)
        _open_runs[place.directory] = self

    def start(
        self, begun: Begun, resumed: Resumed | None = None, supersedes: Mapping[str, int] | None = None
    ) -> None:
        """Write a start record: of the run, and again when a training begins in it."""
        at = None if resumed is None else {"checkpoint": resumed.checkpoint, "global_step": resumed.step}
        self.run.start(
            model=begun.model,
            training={"num_steps": None, **begun.training},
            **{**begun.fields, "resumed_from": at, "supersedes": supersedes},
        )

    def end_training(self) -> None:
        """Note that the training has gone to its end; the run goes on."""
        self.is_trained, self.error = True, None

    def fail(self, error: BaseException) -> None:
        """Note that the training has ended by an error, unless it was over; the run goes on."""
        if not self.is_trained or _is_pruned(error):
            self.is_trained, self.error = False, error

    def add_to_end(self, **fields: object) -> None:
        """Add fields to the end record."""
        self._at_end.update(fields)

    def close(self, error: BaseException | None = None) -> None:
        """Write the end record: how the training ended, or what ends the process; a second call does nothing.

        Where none has begun, what was evaluated is complete unless an error ends it.
        """
        while self._cancel:
            self._cancel.pop()()
        if _open_runs.get(self.run.directory) is self:
            del _open_runs[self.run.directory]
        error = error or self.error
        if error is None and (uncaught := _uncaught()) is not self._error_before:
            error = uncaught
        if self.is_trained or (error is None and not self.is_training):
            self.run.finish(COMPLETE, **self._at_end)
        elif error is None or isinstance(error, KeyboardInterrupt | SystemExit) or _is_pruned(error):
            self.run.finish(INTERRUPTED, cause="stopped", **self._at_end)
        else:
            self.run.__exit__(type(error), error, error.__traceback__)


def _uncaught() -> BaseException | None:
    """Return the error that ended the program, or in a notebook the last cell that had one."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return error


def _is_pruned(error: BaseException) -> bool:
    """Whether a search of hyperparameters gives a trial up, before its end."""
    return type(error).__name__ == "TrialPruned"
