"""The start records of an attempt: where a program goes on is known once it reports its first step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.bridge.recorder import REPORTED
from monitoring.journal.encoding.global_step import as_step
from monitoring.journal.records import MEASURING, read_records
from monitoring.journal.run_state import is_undecided, read_end, superseded
from monitoring.run import Run

OF_WHOLE_RUN = ("hp_metric", "hparam/", REPORTED)
"""Beginnings of what Lightning and SummaryWriter write at step 0 again whenever they begin: options of the
run and their result, which say nothing of where it goes on. And the mark of our own."""


class ProgramAttempt:
    """A run, as the recorder writes it.

    A program finds its own checkpoints, or none. Until it reports a step, a later attempt goes on where the
    one before stood; if its steps then begin earlier, another start record says from where on it does them
    again. So nothing that it did not do again is lost, and nothing counts twice.
    """

    def __init__(self, run: Run, journal: Path, *, program: str, num_steps: int | None) -> None:
        self._run = run
        self._journal = journal
        self._about: Mapping[str, Any] = {
            "model": {"name": program, "architecture": None, "parameters": None},
            "training": {"num_steps": num_steps},
        }
        self._described: Mapping[str, object] | None = None
        self._reached: int | None = None
        """The step at which the attempt before stood."""
        self._last_seq = 0
        """That of the last record before this attempt."""
        self._first: int | None = None
        """The lowest step that this attempt has reported."""

    @property
    def number(self) -> int:
        return self._run.attempt

    def start(self) -> None:
        """Write the start record."""
        before = read_end(self._journal)
        self._last_seq, self._reached, self._first = before.last_seq, before.step, None
        self._run.start(**self._about, **_resumed(self._reached), supersedes=None)

    def stand_for_killed(self) -> None:
        """Record what is relayed from now on as of the attempt before, which was killed before it had.

        That one may have done steps again without having recorded any.
        """
        for record, _ in read_records(self._journal):
            step = as_step(record.get("global_step"))
            if record["event"] == "start" and is_undecided(record):  # as `start` writes it
                resumed = record["resumed_from"]
                self._reached = resumed["global_step"] if isinstance(resumed, Mapping) else None
                self._last_seq, self._first = int(str(record["seq"])) - 1, None
            elif record["event"] == "step" and step is not None:
                self._first = step if self._first is None else min(step, self._first)

    def describe(self, at: float, about: Mapping[str, object]) -> None:
        """Take over what a Run of the program says of its model and training."""
        self._described = about
        self._run.relay("start", None, at, about)

    def relay(self, event: str, global_step: int | None, at: float, fields: Mapping[str, object]) -> None:
        """Record what the program has reported."""
        is_measured = any(not name.startswith(OF_WHOLE_RUN) for name in fields)
        if self._reached is not None and event in MEASURING and global_step is not None and is_measured:
            self._go_on_from(event, global_step)
        self._run.relay(event, global_step, at, fields)

    def _go_on_from(self, event: str, step: int) -> None:
        # An evaluation may be counted in epochs, beside steps that are not.
        if self._first is not None and (event != "step" or step >= self._first):
            return
        assert self._reached is not None
        self._first = step
        if step > self._reached:
            return
        # only here, as the program is not to wait for it
        from monitoring.journal.lineage import superseding

        gone = superseding(self._journal, step - 1, before=self._last_seq)
        if gone is None:
            return
        is_scratch = superseded({"supersedes": gone}).start == 1
        resumed = _resumed(None if is_scratch else step - 1)
        if self._described is None:
            self._run.start(**self._about, **resumed, supersedes=gone)
        else:
            self._run.relay("start", None, time.time(), {**self._described, **resumed, "supersedes": gone})


def _resumed(step: int | None) -> dict[str, Any]:
    """Return `resumed_from`: null for an attempt from scratch."""
    return {"resumed_from": {"checkpoint": None, "global_step": step} if step else None}
