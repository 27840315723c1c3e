"""The bar of an epoch, where a training prints on a terminal; elsewhere there are its lines alone.

    Epoch 1/3: 45%|████▌     | 450/1000 [00:20<00:25, 22.22it/s, loss=2.1234, lr=5e-05, tokens/s=156.7]

Loss, learning rate and throughput are those that the journal has of the last step with a record: they are on
this side of a GPU, which nothing waits for.
"""

from __future__ import annotations

import importlib.util
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from kharness.training.data import Batches
from monitoring.journal.records import LAST_BYTES, parse

# Seconds between two drawings.
DRAW_EVERY = 0.5

CLEAR = "\r\x1b[K"

# Field of a step record -> its name in the bar and its format; of the last two the first that is measured.
SHOWN = {"train_loss": ("loss", ".4f"), "lr": ("lr", ".4g")}
PACES = {"tokens_per_second": ("tokens/s", ".1f"), "samples_per_sec": ("samples/s", ".1f")}


class NoBar:
    """What there is on no terminal."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    def step(self, step: int) -> None: ...

    def end_epoch(self, step: int) -> None: ...


class EpochBar(NoBar):
    """Drawn within `shown`; a step costs a look at the clock, and what is printed takes the bar's line."""

    def __init__(
        self, stream: TextIO, journal: Path, batches: Batches, *, step: int, num_epochs: int, num_steps: int
    ) -> None:
        """Without `num_epochs` it is one bar of all `num_steps`; `step` steps are done."""
        self._stream, self._journal, self._batches = stream, journal, batches
        self._num_epochs, self._num_steps = num_epochs, num_steps
        self._initial = batches.position if num_epochs else step
        self._drawn = False
        self._began = self._now = self._next = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw from now on, and leave a clean line in the end."""
        from tqdm import tqdm

        self._format = tqdm.format_meter
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
        """After the last step of an epoch and its evaluation: the bar stays, and the next begins."""
        if not (self._num_epochs or step == self._num_steps):
            return
        self._draw(step)
        self._write("\n")
        self._drawn = False
        self._initial, self._began = 0, time.monotonic()

    def clear(self) -> None:
        """Make room for a line."""
        if self._drawn:
            self._drawn = False
            self._write(CLEAR)

    def _draw(self, step: int) -> None:
        done, total, name = step, self._num_steps, "Training"
        if self._num_epochs:
            batches = self._batches
            done, total = batches.position or batches.steps_per_epoch, batches.steps_per_epoch
            name = f"Epoch {batches.epoch + (batches.position > 0)}/{self._num_epochs}"
        columns = max(20, shutil.get_terminal_size().columns - 1)
        about = {"prefix": name, "initial": self._initial, "ascii": not _is_utf8(self._stream)}
        seconds = max(0.0, self._now - self._began)
        values = _values(_last_step(self._journal))
        while True:  # what does not fit is left out, from the last on
            about["postfix"] = ", ".join(values)
            if len(self._format(done, total, seconds, **about)) <= columns or not values:
                break
            values.pop()
        self._write(f"{CLEAR}{self._format(done, total, seconds, ncols=columns, **about)}")
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


def open_bar(journal: Path, batches: Batches, *, step: int, num_epochs: int, num_steps: int) -> NoBar:
    """A bar where standard output is a terminal that can move its cursor, and tqdm is there."""
    stream = getattr(sys.stdout, "shown", sys.stdout)
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return NoBar()
    if importlib.util.find_spec("tqdm") is None:
        return NoBar()
    return EpochBar(stream, journal, batches, step=step, num_epochs=num_epochs, num_steps=num_steps)


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


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def _values(record: Mapping[str, object]) -> list[str]:
    pace = next((name for name in PACES if record.get(name) is not None), "")
    shown = SHOWN | ({pace: PACES[pace]} if pace else {})
    values = [(name, style, record.get(field)) for field, (name, style) in shown.items()]
    return [f"{name}={value:{style}}" for name, style, value in values if isinstance(value, int | float)]
