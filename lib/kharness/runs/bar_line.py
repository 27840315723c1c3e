"""The line of a progress bar: where a training is, with what its journal has of the last step with a record.

Epoch 1/3: 45%|████▌     | 450/1000 [00:20<00:25, 22.22it/s, loss=2.1234, lr=5e-05, tokens/s=156.7]
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from monitoring.errors import moves_cursor

# Seconds between two drawings.
DRAW_EVERY = 0.5

CLEAR = "\r\x1b[K"

# Field of a step record -> its name in the bar and its format; of the last two the first that is measured.
SHOWN = {"train_loss": ("loss", ".4f"), "lr": ("lr", ".4g")}
PACES = {"tokens_per_second": ("tokens/s", ".1f"), "samples_per_sec": ("samples/s", ".1f")}


@dataclass(frozen=True)
class Bars:
    """The bars of a training: one for each epoch that it enters, or a single one of all its steps."""

    num_epochs: int
    """0 for a single bar: without a number of epochs, and where the training ends within the first."""
    steps_per_epoch: int
    num_steps: int
    """0 where it is not known."""

    @classmethod
    def of(cls, *, num_epochs: int, steps_per_epoch: int, num_steps: int) -> Bars:
        """Return the bars of a plan, whose last step may come long before the end of its epochs."""
        if num_epochs and num_steps and steps_per_epoch:
            entered = -(-num_steps // steps_per_epoch) if num_steps >= steps_per_epoch else 0
            num_epochs = min(num_epochs, entered)
        return cls(num_epochs, steps_per_epoch, num_steps)

    def after(self, step: int) -> BarPlace:
        """Return the place after `step` steps; the last step of an epoch fills that epoch's bar."""
        if not self.num_epochs:
            return BarPlace("Training", step, self.num_steps)
        epoch = max(1, -(-step // self.steps_per_epoch))
        before = (epoch - 1) * self.steps_per_epoch
        total = min(self.steps_per_epoch, (self.num_steps or math.inf) - before)
        return BarPlace(f"Epoch {epoch}/{self.num_epochs}", step - before, int(total))


@dataclass(frozen=True)
class BarPlace:
    """How far a training is in the bar of that name."""

    name: str
    done: int
    total: int


def can_have_bar(stream: TextIO) -> bool:
    """Whether it is such a terminal, and tqdm is there."""
    return moves_cursor(stream) and importlib.util.find_spec("tqdm") is not None


def bar_line(
    stream: TextIO, place: BarPlace, *, initial: int, seconds: float, record: Mapping[str, object]
) -> str:
    """Return the bar cut to the columns of the terminal, `seconds` after `initial` steps.

    `record` is the last step record.
    """
    from tqdm import tqdm

    columns = max(20, shutil.get_terminal_size().columns - 1)
    is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    values = _values(record)
    while True:  # from the last on
        about = {"prefix": place.name, "initial": initial, "ascii": not is_utf8, "postfix": ", ".join(values)}
        if len(tqdm.format_meter(place.done, place.total, seconds, **about)) <= columns or not values:
            break
        values.pop()
    line: str = tqdm.format_meter(place.done, place.total, seconds, ncols=columns, **about)
    return line


def _values(record: Mapping[str, object]) -> list[str]:
    pace = next((name for name in PACES if record.get(name) is not None), "")
    shown = SHOWN | ({pace: PACES[pace]} if pace else {})
    values = [(name, style, record.get(field)) for field, (name, style) in shown.items()]
    return [f"{name}={value:{style}}" for name, style, value in values if isinstance(value, int | float)]
