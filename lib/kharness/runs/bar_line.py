"""The line of a progress bar: where a training is, with what its journal has of the last step with a record.

Epoch 1/3: 45%|████▌     | 450/1000 [00:20<00:25, 22.22it/s, loss=2.1234, lr=5e-05, tokens/s=156.7]
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

# Seconds between two drawings.
DRAW_EVERY = 0.5

CLEAR = "\r\x1b[K"

# Field of a step record -> its name in the bar and its format; of the last two the first that is measured.
SHOWN = {"train_loss": ("loss", ".4f"), "lr": ("lr", ".4g")}
PACES = {"tokens_per_second": ("tokens/s", ".1f"), "samples_per_sec": ("samples/s", ".1f")}


@dataclass(frozen=True)
class BarPlace:
    """How far a training is: in an epoch, or without a number of epochs in all of its steps."""

    name: str
    done: int
    total: int

    @classmethod
    def after(cls, step: int, *, steps_per_epoch: int, num_epochs: int, num_steps: int) -> BarPlace:
        """After `step` steps; those of an epoch that has just ended are all of it."""
        if not num_epochs:
            return cls("Training", step, num_steps)
        epoch = max(1, -(-step // steps_per_epoch))
        done = step - (epoch - 1) * steps_per_epoch
        return cls(f"Epoch {epoch}/{num_epochs}", done, steps_per_epoch)


def can_have_bar(stream: TextIO) -> bool:
    """Whether it is a terminal that can move its cursor, and tqdm is there."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    return importlib.util.find_spec("tqdm") is not None


def bar_line(
    stream: TextIO, place: BarPlace, *, initial: int, seconds: float, record: Mapping[str, object]
) -> str:
    """The bar within the columns of the terminal, `seconds` after `initial` steps; what does not fit goes.

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
