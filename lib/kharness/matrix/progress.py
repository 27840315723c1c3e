"""What the user sees while runs train: one line that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TextIO

from kharness.matrix.execute import ActiveRun, Outcome, output_tail
from kharness.matrix.launch import OUTPUT_LOG

# Seconds between two drawings of the line, and between two plain lines about a run that takes long.
DRAW_EVERY = 0.25
PLAIN_EVERY = 60.0


class Progress:
    """Runs done, the running ones with step and loss, and the time left once something is measured."""

    def __init__(self, stream: TextIO, num_runs: int) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._num_runs = num_runs
        self._seconds: list[float] = []
        self._num_done = 0
        self._num_bad = 0
        self._drawn = ""
        self._next = 0.0
        self._next_plain = time.monotonic() + PLAIN_EVERY

    def say(self, line: str) -> None:
        """A line that stays."""
        self._wipe()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def started(self, run: ActiveRun, number: int) -> None:
        self.say(f"[{number}/{self._num_runs}] {run.launch.name}: {run.launch.command_line}")

    def ended(self, run: ActiveRun, outcome: Outcome) -> None:
        """How the run ended; for one that failed, also where to look and the end of its output."""
        self._num_done += 1
        if outcome.status == "complete":
            self._seconds.append(outcome.seconds)
            loss = "" if run.tail.train_loss is None else f", last train_loss {run.tail.train_loss:.4f}"
            self.say(f"  complete: {run.tail.step or 0} steps in {duration(outcome.seconds)}{loss}")
            return
        self._num_bad += 1
        log = f"{run.launch.shown_directory}/{OUTPUT_LOG}"
        self.say(f"  {outcome.status}: {outcome.attempt.reason} ({duration(outcome.seconds)}); see {log}")
        if outcome.status != "interrupted":
            for line in output_tail(run.launch.directory / OUTPUT_LOG):
                self.say(f"  | {line}")

    def update(self, running: Sequence[ActiveRun], num_waiting: int) -> None:
        """Look at the journals and draw, if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + DRAW_EVERY
        for run in running:
            run.tail.update()
        if self._terminal:
            self._draw(self._line(running, num_waiting))
        elif now >= self._next_plain:
            self._next_plain = now + PLAIN_EVERY
            self.say(self._line(running, num_waiting))

    def close(self) -> None:
        self._wipe()

    def _line(self, running: Sequence[ActiveRun], num_waiting: int) -> str:
        parts = [f"{self._num_done}/{self._num_runs} done"]
        if self._num_bad:
            parts.append(f"{self._num_bad} not complete")
        parts += [_state(run) for run in running]
        left = self._seconds_left(running, num_waiting)
        if left is not None:
            parts.append(f"ETA {duration(left)}")
        return "  ".join(parts)

    def _seconds_left(self, running: Sequence[ActiveRun], num_waiting: int) -> float | None:
        """From the pace of the running ones and the mean length of a run; None where neither is measured."""
        current = [run.tail.seconds_left for run in running]
        if any(left is None for left in current):
            return None
        left_now = max((left for left in current if left is not None), default=0.0)
        if not num_waiting:
            return left_now
        lengths = self._seconds or [
            time.time() - run.started + left
            for run, left in zip(running, current, strict=True)
            if left is not None
        ]
        if not lengths:
            return None
        return left_now + num_waiting * (sum(lengths) / len(lengths)) / max(1, len(running))

    def _draw(self, line: str) -> None:
        # Asked each time, for a window may be resized; 0 is a terminal that does not know.
        width = (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        line = line if len(line) <= width else line[: max(0, width - 1)] + "…"
        if line != self._drawn:
            self._stream.write(f"\r{line}\x1b[K")
            self._stream.flush()
            self._drawn = line

    def _wipe(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""


def duration(seconds: float) -> str:
    """4.2 s, 1:05, 2:00:00."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _state(run: ActiveRun) -> str:
    tail = run.tail
    if tail.step is None:
        return f"{run.launch.name}  {'preparing' if tail.start else 'starting'}"
    loss = "" if tail.train_loss is None else f"  loss {tail.train_loss:.4f}"
    return f"{run.launch.name}  step {tail.step}/{tail.num_steps or '?'}{loss}"
