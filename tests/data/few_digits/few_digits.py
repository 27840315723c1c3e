"""120 + 20 digits in lenet5/few-digits, for trainings of which the steps count and not what is learned."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._digits import read_idx
from kharness.training.datasets._files import Sources
from kharness.training.datasets._pictures import PictureSet

FOLDER = "lenet5/few-digits"
ARRAYS = ("train-images", "train-labels", "test-images", "test-labels")


@dataclass(frozen=True)
class Options:
    """Nothing to choose."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder: nothing is downloaded."""
    return root / FOLDER


def check(options: Options, root: Path) -> None:
    """It is there, for tests/few_digits.py wrote it."""


def load(options: Options, root: Path) -> PictureSet:
    """The four arrays."""
    contents = [(root / FOLDER / name).read_bytes() for name in ARRAYS]
    first, second, third, fourth = (read_idx(content, name=FOLDER) for content in contents)
    sha256 = hashlib.sha256(b"".join(contents)).hexdigest()
    return PictureSet(first, second, third, fourth, tuple("0123456789"), (0.1307,), (0.3081,), sha256)
