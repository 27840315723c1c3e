"""Command-line arguments for GPUs and times."""

from __future__ import annotations

import argparse
import math
from typing import Literal


def gpu_indices(text: str) -> list[int] | Literal["all"]:
    """`all`, or indices with commas between them."""
    if text == "all":
        return "all"
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a GPU's number nor all")
    return found


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
