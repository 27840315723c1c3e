"""The digits shipped in lenet5/mnist-subset, for models of pictures."""

from __future__ import annotations

from pathlib import Path

from kharness.training.datasets import mnist_subset
from kharness.training.datasets._pictures import PictureSet

Options = mnist_subset.Options
fetch, check, count = mnist_subset.fetch, mnist_subset.check, mnist_subset.count


def load(options: Options, root: Path) -> PictureSet:
    """6,000 training and 1,000 test pictures, 28x28; DatasetError if a file is missing or damaged."""
    digits = mnist_subset.load(options, root)
    return PictureSet.gray(digits, classes=tuple("0123456789"), mean=0.1307, std=0.3081)
