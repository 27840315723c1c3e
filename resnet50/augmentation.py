"""Random crops, flips and cutouts of a batch of pictures, on their device and from one generator per run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kharness.training.data import Batches, SampleDraws
from kharness.training.seeds import derived_seed

# torchvision's RandomResizedCrop.get_params draws so often.
ATTEMPTS = 10

Box = tuple[int, int, int, int]
"""Left, top, right and bottom of a part of a picture, in pixels."""


@dataclass(frozen=True)
class Normalization:
    """Bytes to numbers of mean 0 and deviation 1, and gray pictures to three channels."""

    mean: Tensor
    """(channels, 1, 1), of pixels from 0 to 1."""
    std: Tensor

    @classmethod
    def of(cls, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> Normalization:
        """Build from the mean and standard deviation of a dataset, by channel."""
        return cls(*(torch.tensor(values, device=device).view(-1, 1, 1) for values in (mean, std)))

    def __call__(self, pictures: Tensor) -> Tensor:
        """(n, 1 or 3, height, width) bytes to (n, 3, height, width) floats."""
        return pictures.float().div_(255).sub_(self.mean).div_(self.std).expand(-1, 3, -1, -1)

    def undone(self, pictures: Tensor) -> Tensor:
        """The bytes, in three channels."""
        return pictures.mul(self.std).add_(self.mean).mul_(255).round_().clamp_(0, 255).byte()


class Augmentation:
    """Random augmentation of training pictures, different for each picture and epoch."""

    def __init__(
        self, *, size: int, padding: int, flip: bool, cutout: int, seed: int, device: torch.device
    ) -> None:
        """`size` is the side of the crops, `cutout` that of a square that is blanked; 0 for none."""
        self.size, self.padding, self.flip, self.cutout = size, padding, flip, cutout
        self._generator = torch.Generator(device).manual_seed(seed)
        self._draws = SampleDraws(device, self._generator)

    def follow(self, batches: Batches) -> None:
        """Draw for all samples of each batch: what one undergoes depends on no process and micro-batch."""
        self._draws.follow(batches)

    def crop(self, pictures: Tensor) -> Tensor:
        """A random window of the bytes with a black border, mirrored in half of the cases.

        Of the next samples of a batch; `blank` goes on with the same.
        """
        self._draws.begin(len(pictures))
        padded = F.pad(pictures, (self.padding,) * 4)
        count, height, width = len(padded), padded.shape[2], padded.shape[3]
        side = torch.arange(self.size, device=pictures.device)
        rows = self._draws.below(height - self.size + 1, count).mT + side
        columns = self._draws.below(width - self.size + 1, count).mT + side
        if self.flip:
            mirrored = self._draws.below(2, count).mT == 1
            columns = torch.where(mirrored, columns.flip(1), columns)
        each = torch.arange(count, device=pictures.device)
        found = padded[each[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return found.permute(0, 3, 1, 2)

    def blank(self, pictures: Tensor) -> Tensor:
        """A square of zeros around a random pixel of normalized pictures (DeVries and Taylor 2017)."""
        if self.cutout == 0:
            return pictures
        side = torch.arange(self.size, device=pictures.device)
        top, left = (self._draws.below(self.size, len(pictures)).mT - self.cutout // 2 for _ in range(2))
        rows = (side >= top) & (side < top + self.cutout)
        columns = (side >= left) & (side < left + self.cutout)
        return pictures.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)

    def state_dict(self) -> dict[str, Tensor]:
        """Where the generator is."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the random numbers after those that were drawn then."""
        self._generator.set_state(state["generator"])


@dataclass(frozen=True)
class PictureView:
    """Makes bytes what the model sees: normalized pictures, `size` high and wide."""

    normalize: Normalization
    size: int
    augmentation: Augmentation | None = None
    """None for what is only evaluated."""

    def of_step(self, pictures: Tensor) -> Tensor:
        """The pictures of a training step, augmented in a training split."""
        if self.augmentation is None:
            return self.middle(pictures)
        return self.augmentation.blank(self.normalize(self.augmentation.crop(pictures)))

    def middle(self, pictures: Tensor) -> Tensor:
        """The middle of each picture, which an evaluation sees."""
        top, left = ((side - self.size) // 2 for side in pictures.shape[2:])
        return self.normalize(pictures[:, :, top : top + self.size, left : left + self.size])


@dataclass(frozen=True)
class ResizedCrops:
    """A part of a picture of random size and shape, as torchvision's RandomResizedCrop takes one.

    Szegedy et al. 2015 (Going deeper with convolutions): a share of the area, from `least_area` to all of it,
    and a ratio of the sides from 3/4 to 4/3, uniform in its logarithm. What does not lie within the picture
    is drawn again, up to ten times; then the middle is taken, in the ratio next to that of the picture.
    """

    seed: int
    least_area: float

    def box(self, width: int, height: int, *, epoch: int, number: int) -> Box:
        """Return the crop of a picture by its number; the same for any number of readers, processes and
        micro-batches.
        """
        key = derived_seed(self.seed, "crop", epoch, number)
        draws = np.random.Generator(np.random.Philox(key=key)).random((ATTEMPTS, 4))
        return resized_crop(width, height, draws.tolist(), least_area=self.least_area)


def resized_crop(
    width: int, height: int, draws: Sequence[Sequence[float]], *, least_area: float, ratio: float = 4 / 3
) -> Box:
    """The box by numbers below 1: of each attempt for area, ratio of the sides, left and top."""
    for area, aspect, left, top in draws:
        pixels = width * height * (least_area + (1 - least_area) * area)
        sides = ratio ** (2 * aspect - 1)
        w, h = round(math.sqrt(pixels * sides)), round(math.sqrt(pixels / sides))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(left * (width - w + 1)), int(top * (height - h + 1))
            return x, y, x + w, y + h
    w, h = min(width, round(height * ratio)), min(height, round(width * ratio))
    x, y = (width - w) // 2, (height - h) // 2
    return x, y, x + w, y + h
