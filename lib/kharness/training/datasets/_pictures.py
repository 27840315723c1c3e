"""Sets of labeled pictures of one size: the interface between models of pictures and their datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # the checks before a matrix need no arrays, and NumPy takes longer to import than they do
    import numpy as np
    import numpy.typing as npt

Bytes: TypeAlias = "npt.NDArray[np.uint8]"


@dataclass(frozen=True, eq=False)
class PictureSet:
    """Training and test pictures, gray (n, height, width) or colored (n, 3, height, width); labels (n)."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    classes: tuple[str, ...]
    """Class names for the labels 0, 1, …."""
    mean: tuple[float, ...]
    """Mean of the training pixels by channel, scaled to 0..1."""
    std: tuple[float, ...]
    """Standard deviation of the training pixels by channel, scaled to 0..1."""
    sha256: str
    """SHA-256 that identifies the data."""
