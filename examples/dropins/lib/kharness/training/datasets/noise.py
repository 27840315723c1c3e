"""Images of noise, of which nothing can be learned but the labels by heart."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kharness.training.datasets._files import Sources
from kharness.training.datasets._pictures import PictureSet


@dataclass(frozen=True)
class Options:
    """How much noise."""

    images: int


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """Nothing is downloaded."""
    return root


def check(options: Options, root: Path) -> None:
    """Nothing can be missing."""


def load(options: Options, root: Path) -> PictureSet:
    """The same images for training and test."""
    images = np.random.default_rng(0).integers(0, 256, (options.images, 28, 28), dtype=np.uint8)
    labels = np.arange(options.images, dtype=np.uint8) % 10
    classes, mean, std = tuple("0123456789"), (images.mean() / 255,), (images.std() / 255,)
    return PictureSet(
        images, labels, images, labels, classes, mean, std, hashlib.sha256(images.tobytes()).hexdigest()
    )
