"""Error of an accuracy due to its finite test set, which no number of seeds reduces.

Two accuracies that differ by d differ on N|d| of N images at least. Were chance to decide those, d had the
variance |d|(1-|d|)/N (McNemar 1947). It is the same at every look, since the images are. An interval has
the seeds' half width and this one, squared and added (Howe 1974; Zou and Donner 2008): where one of the two
errors is small, it is the interval of the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kharness.report.collection import CellResult
from kharness.report.judging.statistics import Numbers, normal_quantile
from kharness.report.metrics import Metric, of_split
from kharness.report.runs import fields_in

_SPLITS = {"test": "test", "val": "validation"}


@dataclass(frozen=True)
class Images:
    """The number of images that an accuracy is measured on; None for any other metric."""

    number: int | None = None

    def weight(self, alpha: float) -> float:
        """Return the factor of |d|(1-|d|) in the squared half width of an interval; 0 without images."""
        if self.number is None or alpha >= 1:
            return 0.0
        return normal_quantile(alpha) ** 2 / self.number


NO_IMAGES = Images()


def images_behind(metric: Metric, cells: Sequence[CellResult]) -> Images:
    """Return the smallest size of the metric's split in the start records, if all have one."""
    parts = of_split(metric.name)
    if parts.what != "accuracy" or parts.split not in _SPLITS:
        return NO_IMAGES
    sizes = []
    for cell in cells:
        size = fields_in(cell.run.start, "dataset").get(_SPLITS[parts.split])
        if not isinstance(size, int) or size <= 0:
            return NO_IMAGES
        sizes.append(size)
    return Images(min(sizes, default=None))


def variance(difference: float) -> float:
    """Return the variance of a difference of accuracies, times the number of images."""
    return max(0.0, abs(difference) * (1 - abs(difference)))


def widened(half: float, difference: float, weight: float) -> float:
    """Return the half width of an interval, from the half width due to the seeds alone."""
    return math.sqrt(half**2 + weight * variance(difference))


def just_shown(half: Numbers, weight: float) -> Numbers:
    """Return the differences whose intervals just reach zero, from the half widths due to the seeds alone.

    It is the d with d² = half² + weight d(1-d).
    """
    found: Numbers = (weight + np.sqrt(weight**2 + 4 * (1 + weight) * half**2)) / (2 * (1 + weight))
    return found


def least_shown(weight: float) -> float:
    """Return the lower limit of differences that any number of seeds can show."""
    return weight / (1 + weight)
