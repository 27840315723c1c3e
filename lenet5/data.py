"""MNIST as tensors on the device: training, validation and test images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kharness.config.options import Options
from kharness.training.checkpoint import Stateful
from kharness.training.data import Batches, LabeledImages, SampleDraws, entropy, evenly_spaced
from kharness.training.datasets import load_dataset
from kharness.training.datasets._pictures import Bytes, PictureSet


@dataclass(frozen=True)
class Splits:
    """Validation images are held out of the training set; the test set is for one look, after training."""

    train: LabeledImages
    validation: LabeledImages
    test: LabeledImages
    pictures: PictureSet
    """The same as bytes."""

    @property
    def sha256(self) -> str:
        """Over the SHA-256 of every file: which data this was."""
        return self.pictures.sha256

    @property
    def sizes(self) -> dict[str, int]:
        """Images in each split."""
        return {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)}

    @property
    def chance_loss(self) -> float:
        """Cross-entropy, in nats, of guessing each digit by its frequency."""
        return entropy(self.train.labels)

    def undone(self, images: Tensor) -> Tensor:
        """The bytes (n, 3, 28, 28) of normalized images (n, 1, 28, 28)."""
        pixels = images.mul(self.pictures.std[0]).add_(self.pictures.mean[0]).mul_(255)
        return pixels.round_().clamp_(0, 255).byte().expand(-1, 3, -1, -1)

    def begin(self, batches: Batches) -> Mapping[str, Stateful]:
        """Shifts are drawn for all images of a batch, however many processes share it."""
        if isinstance(self.train, ShiftedImages):
            self.train.draws.follow(batches)
        return {}


@dataclass(frozen=True)
class ShiftedImages(LabeledImages):
    """Images of which each batch sees a random 28x28 window of the image with a border of `shift` pixels."""

    shift: int
    draws: SampleDraws

    @classmethod
    def of(cls, images: LabeledImages, shift: int) -> ShiftedImages:
        """The images with a border, and every window a view of it: (n, 1, down, across, 28, 28)."""
        background = float(images.images.min())
        bordered = F.pad(images.images, (shift,) * 4, value=background)
        return cls(
            bordered.unfold(2, 28, 1).unfold(3, 28, 1), images.labels, shift, SampleDraws(bordered.device)
        )

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """A window an image, chosen by torch's generator; one gather for the entire batch."""
        self.draws.begin(len(indices))
        down, across = self.draws.below(2 * self.shift + 1, len(indices), rows=2)
        return self.images[indices, :, down, across], self.labels[indices]


def load_splits(options: Options, *, root: Path, device: torch.device) -> Splits:
    """The splits of the chosen DATASET; DatasetError if a file is missing or damaged."""
    found: PictureSet = load_dataset(options.DATASET, options.values, root)
    images, labels = found.train_images, found.train_labels
    held_out = evenly_spaced(len(labels), options.LENET5_VALIDATION_FRACTION).numpy()
    kept = np.ones(len(labels), dtype=bool)
    kept[held_out] = False

    def on_device(images: Bytes, labels: Bytes) -> LabeledImages:
        """Normalized float images (n, 1, 28, 28) and integer labels, all at once."""
        pixels, classes = torch.from_numpy(images).to(device), torch.from_numpy(labels.astype(np.int64))
        normalized = pixels.unsqueeze(1).float().div_(255).sub_(found.mean[0]).div_(found.std[0])
        return LabeledImages(normalized, classes.to(device))

    # Chosen as bytes: as floats the images are four times as large.
    train = on_device(images[kept], labels[kept])
    return Splits(
        train=ShiftedImages.of(train, options.LENET5_SHIFT) if options.LENET5_SHIFT else train,
        validation=on_device(images[held_out], labels[held_out]),
        test=on_device(found.test_images.copy(), found.test_labels),
        pictures=found,
    )
