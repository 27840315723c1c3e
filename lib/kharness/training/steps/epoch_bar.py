"""The bar of an epoch, where a training prints on a terminal; elsewhere there are its lines alone.

Loss, learning rate and throughput are those that the journal has of the last step with a record: they are on
this side of a GPU, which nothing waits for.
"""

from __future__ import annotations

import math
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from kharness.runs.bar_line import CLEAR, DRAW_EVERY, PACES, Bars, bar_line, can_have_bar
from kharness.training.data import Batches
from monitoring.journal.records import LAST_BYTES, parse


class NoBar:
    """The bar where there is no terminal: none."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    def step(self, step: int) -> None: ...

    def end_epoch(self, step: int) -> None: ...


class EpochBar(NoBar):
    """Drawn within `shown`; a step costs a look at the clock, and what is printed takes the bar's line."""

    def __init__(self, stream: TextIO, journal: Path, batches: Batches, bars: Bars, *, step: int) -> None:
        """Show a training of these bars; `step` steps are done."""
        self._stream, self._journal, self._batches, self._bars = stream, journal, batches, bars
        self._initial = batches.position if self._bars.num_epochs else step
        self._drawn = False
        self._began = self._now = 0.0
        self._next = math.inf  # a single step that is checked is not shown

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw from now on, and leave a clean line in the end."""
        before = sys.stdout, sys.stderr
        sys.stdout = cast(TextIO, _Clearing(sys.stdout, self))
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr = cast(TextIO, _Clearing(sys.stderr, self))
        self._began = self._now = time.monotonic()
        self._next = self._began + DRAW_EVERY
        try:
            yield
        finally:
            self.clear()
            sys.stdout, sys.stderr = before

    def step(self, step: int) -> None:
        """After a step."""
        self._now = now = time.monotonic()
        if now >= self._next:
            self._next = now + DRAW_EVERY
            # After Ctrl-S, say, a terminal takes nothing: no step waits for it.
            if select.select([], [self._stream], [], 0)[1]:
                self._draw(step)

    def end_epoch(self, step: int) -> None:
        """After the last step of an epoch and its evaluation: its line takes the bar's place."""
        if self._bars.num_epochs or step == self._bars.num_steps:
            self.clear()
            self._initial, self._began = 0, time.monotonic()

    def clear(self) -> None:
        """Make room for a line."""
        if self._drawn:
            self._drawn = False
            self._write(CLEAR)

    def _draw(self, step: int) -> None:
        batches = self._batches
        # What a training without epochs counts, its batches need not.
        place = self._bars.after(batches.taken if self._bars.num_epochs else step)
        seconds, record = max(0.0, self._now - self._began), _last_step(self._journal)
        line = bar_line(self._stream, place, initial=self._initial, seconds=seconds, record=record)
        self._write(f"{CLEAR}{line}")
        self._drawn = True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Clearing:
    """A stream whose writer takes the bar's place."""

    def __init__(self, stream: TextIO, bar: EpochBar) -> None:
        self._stream, self._bar = stream, bar

    def write(self, text: str) -> int:
        self._bar.clear()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_bar(journal: Path, batches: Batches, bars: Bars, *, step: int) -> NoBar:
    """A bar where standard output is a terminal that can move its cursor, and tqdm is there."""
    stream = getattr(sys.stdout, "shown", sys.stdout)
    return EpochBar(stream, journal, batches, bars, step=step) if can_have_bar(stream) else NoBar()


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Metrics as a line of a terminal has them."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def epoch_block(journal: Path, *, loss: float | None, learning_rate: float, epoch: float) -> str:
    """Return a training's last numbers as trainers print their logs, with the newest pace."""
    record = _last_step(journal)
    pace = next((name for name in PACES if record.get(name) is not None), None)
    values = {
        "loss": None if loss is None else round(loss, 4),
        "learning_rate": float(f"{learning_rate:.4g}"),
        "epoch": round(epoch, 2),
        **({pace: float(f"{record[pace]:.1f}")} if pace else {}),
    }
    return "\n".join(["{", *(f"    {name!r}: {value!r}," for name, value in values.items()), "}"])


def _last_step(journal: Path) -> Mapping[str, object]:
    """The last step record, empty if the end of the journal has none."""
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    steps = (line for line in reversed(lines) if line.startswith(b'{"event":"step"'))
    return next((record for record in map(parse, steps) if record is not None), {})
