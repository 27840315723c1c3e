"""Sets of labeled pictures of one size: the interface between image models and their datasets."""

from __future__ import annotations

from dataclasses import dataclass

from kharness.training.datasets._digits import Mnist
from kharness.training.datasets._files import IdxArray


@dataclass(frozen=True)
class PictureSet:
    """Training and test pictures, gray (n, height, width) or colored (n, 3, height, width), bytes."""

    train_images: IdxArray
    train_labels: IdxArray
    test_images: IdxArray
    test_labels: IdxArray
    classes: tuple[str, ...]
    """Class names for the labels 0, 1, …."""
    mean: tuple[float, ...]
    """Mean of the training pixels by channel, scaled to 0..1."""
    std: tuple[float, ...]
    """Standard deviation of the training pixels by channel, scaled to 0..1."""
    sha256: str
    """SHA-256 that identifies the data."""

    @classmethod
    def gray(cls, found: Mnist, *, classes: tuple[str, ...], mean: float, std: float) -> PictureSet:
        """The arrays of a set in MNIST's format."""
        arrays = found.train_images, found.train_labels, found.test_images, found.test_labels
        return cls(*arrays, classes=classes, mean=(mean,), std=(std,), sha256=found.sha256)
