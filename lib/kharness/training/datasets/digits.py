"""The digits shipped in lenet5/mnist-subset, for models of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets import mnist_subset
from kharness.training.datasets._files import Sources
from kharness.training.datasets._pictures import PictureSet

SUBSET = mnist_subset.Options()


@dataclass(frozen=True)
class Options:
    """Nothing to choose."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder of the files, verified: they are shipped."""
    return mnist_subset.fetch(SUBSET, root, sources)


def check(options: Options, root: Path) -> None:
    """DatasetError if a file is missing."""
    mnist_subset.check(SUBSET, root)


def count(options: Options, root: Path) -> int:
    """Training pictures."""
    return mnist_subset.count(SUBSET, root)


def load(options: Options, root: Path) -> PictureSet:
    """6,000 training and 1,000 test pictures, 28x28; DatasetError if a file is missing or damaged."""
    digits = mnist_subset.load(SUBSET, root)
    return PictureSet.gray(digits, classes=tuple("0123456789"), mean=0.1307, std=0.3081)
