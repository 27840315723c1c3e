"""Pictures in training, validation and test splits, held as bytes on the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kharness.config.options import Options
from kharness.training.checkpoint import Stateful
from kharness.training.data import Batches, LabeledImages, OwnChunks, entropy, evenly_spaced
from kharness.training.datasets import load_dataset
from kharness.training.datasets._pictures import Bytes, PictureSet
from kharness.training.datasets.imagefolder import FolderPart, PictureFolder
from kharness.training.errors import DatasetError
from kharness.training.seeds import derived_seed
from resnet50.augmentation import Augmentation, Normalization, PictureView, ResizedCrops
from resnet50.folder import FolderPictures, PictureFiles
from resnet50.needs import check_single

# Of a picture in a file the middle is kept, so many times as large as what the model sees: 256 for 224.
WHOLE = 8 / 7


class PictureSplit(Protocol):
    """A part of the pictures, wherever they are kept."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, /) -> tuple[Tensor, Tensor]:
        """Pictures (n, 3, size, size), normalized, and their labels."""

    def chunks(self, size: int, own: OwnChunks = iter) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them in order, as an evaluation sees them: the middle of each picture."""


@dataclass(frozen=True)
class PictureSplits:
    """Validation pictures are held out of the training set; the test set is for one look, after training."""

    train: PictureSplit
    validation: PictureSplit
    test: PictureSplit
    classes: tuple[str, ...]
    """Class names by label."""
    sha256: str
    augmentation: Augmentation
    normalize: Normalization

    @property
    def sizes(self) -> dict[str, int]:
        """Pictures in each split."""
        return {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)}

    @property
    def chance_loss(self) -> float:
        """Cross-entropy, in nats, of guessing each class by its frequency; for a folder, of a uniform
        guess.
        """
        return (
            entropy(self.train.labels)
            if isinstance(self.train, HeldPictures)
            else math.log(len(self.classes))
        )

    def begin(self, batches: Batches) -> Mapping[str, Stateful]:
        """A resumed training draws the random numbers that follow."""
        self.augmentation.follow(batches)
        if isinstance(self.train, FolderPictures):
            self.train.follow(batches)
        return {"augmentation": self.augmentation}


@dataclass(frozen=True)
class HeldPictures(LabeledImages):
    """Pictures whose bytes are on the device, all of them."""

    view: PictureView

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Augmented, where this is a training split."""
        pictures, labels = super().batch(indices)
        return self.view.of_step(pictures), labels

    def chunks(self, size: int, own: OwnChunks = iter) -> Iterator[tuple[Tensor, Tensor]]:
        """Without copying the bytes."""
        for pictures, labels in super().chunks(size, own):
            yield self.view.middle(pictures), labels


def load_splits(options: Options, *, root: Path, device: torch.device) -> PictureSplits:
    """The splits of the chosen DATASET; DatasetError if a file is missing or damaged."""
    augmentation = Augmentation(
        size=options.RESNET50_IMAGE_SIZE,
        padding=options.RESNET50_CROP_PADDING,
        flip=options.RESNET50_FLIP,
        cutout=options.RESNET50_CUTOUT,
        seed=derived_seed(options.SEED, "augmentation"),
        device=device,
    )
    found: PictureSet | PictureFolder = load_dataset(options.DATASET, options.values, root)
    normalize = Normalization.of(found.mean, found.std, device)
    view = PictureView(normalize, options.RESNET50_IMAGE_SIZE)
    augmented = replace(view, augmentation=augmentation)
    if isinstance(found, PictureFolder):
        splits = _in_files(found, options, view, augmented, device)
    else:
        splits = _held(found, options, view, augmented, device)
    return PictureSplits(*splits, found.classes, found.sha256, augmentation, normalize)


Splits = tuple[PictureSplit, PictureSplit, PictureSplit]
"""Training, validation and test."""


def _held(
    found: PictureSet, options: Options, view: PictureView, augmented: PictureView, device: torch.device
) -> Splits:
    images, labels = _pictures(found.train_images, view.size, device), _labels(found.train_labels, device)
    test = _pictures(found.test_images, view.size, device)
    kept, held_out = _split(len(labels), options, device)
    return (
        HeldPictures(images[kept], labels[kept], augmented),
        HeldPictures(images[held_out], labels[held_out], view),
        HeldPictures(test, _labels(found.test_labels, device), view),
    )


def _in_files(
    found: PictureFolder, options: Options, view: PictureView, augmented: PictureView, device: torch.device
) -> Splits:
    kept, held_out = _split(len(found.train.names), options, torch.device("cpu"))
    crops = None
    if options.RESNET50_RESIZED_CROP:
        crops = ResizedCrops(options.SEED, options.RESNET50_RESIZED_CROP_AREA)

    def pictures(part: FolderPart, numbers: Tensor, seen: PictureView) -> FolderPictures:
        cropped = crops if seen is augmented else None
        side = seen.size if cropped else round(seen.size * WHOLE)
        return FolderPictures(
            PictureFiles(part, numbers, side=side, crops=cropped),
            seen,
            device=device,
            readers=options.RESNET50_READERS,
            ahead=options.RESNET50_READ_AHEAD,
        )

    return (
        pictures(found.train, kept, augmented),
        pictures(found.train, held_out, view),
        pictures(found.test, torch.arange(len(found.test.names)), view),
    )


def _split(count: int, options: Options, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of the training pictures, and of those that are held out for validation.

    DatasetError where the last step of an epoch would have one value for each mean of a batch norm.
    """
    held_out = evenly_spaced(count, options.RESNET50_VALIDATION_FRACTION).to(device)
    check_single(options.values, samples=count - len(held_out))
    kept = torch.ones(count, dtype=torch.bool, device=device)
    kept[held_out] = False
    return kept.nonzero().flatten(), held_out


def _pictures(found: Bytes, size: int, device: torch.device) -> Tensor:
    """(n, 1 or 3, height, width), with a black border where they are smaller than `size`."""
    pictures = torch.from_numpy(found.copy()).to(device)
    pictures = pictures.unsqueeze(1) if pictures.ndim == 3 else pictures
    missing = [max(0, size - side) for side in pictures.shape[2:]]
    if max(missing) * 2 > size:
        raise DatasetError(
            f"RESNET50_IMAGE_SIZE={size} is more than twice the {pictures.shape[3]} pixels of the pictures",
            hint="choose 32 for pictures of 28 or 32 pixels",
        )
    above, left = (lack // 2 for lack in missing)
    return F.pad(pictures, (left, missing[1] - left, above, missing[0] - above))


def _labels(found: Bytes, device: torch.device) -> Tensor:
    return torch.from_numpy(found.astype(np.int64)).to(device)
