"""After training: predictions with pictures, latency and accuracy by batch size."""

from __future__ import annotations

import io

import torch
from PIL import Image
from torch import Tensor, nn

from kharness.training.inference.predictions import LINE, TILE, measure, sheet
from resnet50.augmentation import Normalization, PictureView
from resnet50.data import HeldPictures

CPU = torch.device("cpu")
NORMALIZE = Normalization.of((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), CPU)


class Brightness(nn.Module):
    """Predicts class 1 for pictures that are brighter than the mean."""

    def forward(self, pictures: Tensor) -> Tensor:
        bright = pictures.mean((1, 2, 3))
        return torch.stack([-bright, bright], 1)


def split(count: int) -> HeldPictures:
    """Black and white pictures in turns; every fourth label is wrong."""
    images = torch.zeros(count, 3, 4, 4, dtype=torch.uint8)
    images[1::2] = 255
    labels = torch.arange(count) % 2
    labels[::4] = 1
    return HeldPictures(images, labels, PictureView(NORMALIZE, 4))


def test_accuracy_and_latency_of_a_batch_size() -> None:
    found = measure(Brightness(), split(16), 4)
    assert found.keys() == {"batch_4_latency_seconds", "batch_4_samples_per_sec", "batch_4_accuracy"}
    assert found["batch_4_accuracy"] == 0.75
    assert found["batch_4_latency_seconds"] > 0
    assert found["batch_4_samples_per_sec"] == 4 / found["batch_4_latency_seconds"]


def test_accuracy_is_of_the_same_pictures_for_every_batch_size() -> None:
    """The first 30 are wrong: 22 batches of one picture would have none that is right."""
    images = torch.zeros(1100, 3, 4, 4, dtype=torch.uint8)
    labels = torch.zeros(1100, dtype=torch.int64)
    labels[:30] = 1
    labels[1000:] = 1
    pictures = HeldPictures(images, labels, PictureView(NORMALIZE, 4))
    found = [measure(Brightness(), pictures, size)[f"batch_{size}_accuracy"] for size in (1, 8, 64)]
    assert found == [0.97, 0.97, 0.97]


def test_more_than_there_are_is_not_measured() -> None:
    assert measure(Brightness(), split(16), 17) == {}


def test_normalization_is_undone_to_the_byte() -> None:
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, 3, -1, -1)
    assert torch.equal(NORMALIZE.undone(NORMALIZE(every)), every)


def test_a_sheet_shows_pictures_and_marks_what_is_wrong() -> None:
    pictures = torch.zeros(9, 3, 32, 32, dtype=torch.uint8)
    pictures[8, 0] = 200
    right = {"label": "cat", "predicted": "cat", "probability": 0.9}
    wrong = {"label": "cat", "predicted": "dog", "probability": 0.5}
    with Image.open(io.BytesIO(sheet(pictures, [right] * 8 + [wrong]))) as image:
        assert image.size == (8 * TILE, 2 * (TILE + 2 * LINE))
        assert image.getpixel((50, TILE + 2 * LINE + 50)) == (200, 0, 0)
        colors = {
            name: {color for _, color in image.crop(box).getcolors(1 << 16) or []}
            for name, box in {
                "right": (0, TILE, TILE, TILE + 2 * LINE),
                "wrong": (0, 2 * TILE + 2 * LINE, TILE, 2 * TILE + 4 * LINE),
            }.items()
        }
    assert (0x22, 0x22, 0x22) in colors["right"] - colors["wrong"]
    assert (0xA2, 0x3B, 0x00) in colors["wrong"] - colors["right"]
