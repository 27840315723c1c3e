"""Crops, flips and cutouts move and blank pixels as they say, and draw from one generator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kharness.training.data import Batches
from kharness.training.distributed.world import World
from resnet50.augmentation import Augmentation, Normalization, PictureView, ResizedCrops, resized_crop

CPU = torch.device("cpu")


def augmentation(*, padding: int = 2, flip: bool = False, cutout: int = 0, seed: int = 1) -> Augmentation:
    return Augmentation(size=6, padding=padding, flip=flip, cutout=cutout, seed=seed, device=CPU)


def numbered(count: int) -> Tensor:
    """Pictures whose pixels are all different, also from channel to channel, and none is black."""
    return torch.arange(1, 109, dtype=torch.uint8).reshape(1, 3, 6, 6).expand(count, -1, -1, -1)


def windows(picture: Tensor, padding: int) -> list[Tensor]:
    padded = F.pad(picture, (padding,) * 4)
    return [padded[:, y : y + 6, x : x + 6] for y in range(2 * padding + 1) for x in range(2 * padding + 1)]


def test_each_picture_has_a_window_of_its_own() -> None:
    pictures = numbered(500)
    possible = windows(pictures[0], 2)
    seen = set()
    for crop in augmentation().crop(pictures):
        (found,) = (i for i, window in enumerate(possible) if torch.equal(crop, window))
        seen.add(found)
    assert seen == set(range(25))


def test_half_of_the_pictures_are_mirrored() -> None:
    pictures = numbered(1000)
    crops = augmentation(padding=0, flip=True).crop(pictures)
    plain = sum(torch.equal(crop, pictures[0]) for crop in crops)
    mirrored = sum(torch.equal(crop, pictures[0].flip(2)) for crop in crops)
    assert (plain + mirrored, 400 < mirrored < 600) == (1000, True)


def test_a_square_around_any_pixel_is_blanked() -> None:
    """Side 3, cut off at the border, so 4 to 9 pixels; all channels alike."""
    blanked = augmentation(cutout=3).blank(torch.ones(2000, 3, 6, 6)) == 0
    assert torch.equal(blanked[:, 0], blanked[:, 2])
    centers = set()
    for square in blanked[:, 0]:
        rows, columns = (square.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
        assert square.sum() == len(rows) * len(columns)
        assert {len(rows), len(columns)} <= {2, 3}
        centers.add((rows[0] + 1 if rows[0] or len(rows) == 3 else 0, columns[-1]))
    assert {center[0] for center in centers} == set(range(6))
    assert torch.equal(augmentation().blank(torch.ones(1, 3, 6, 6)), torch.ones(1, 3, 6, 6))


def test_the_state_continues_and_the_seed_decides() -> None:
    pictures = numbered(20)
    first = augmentation(flip=True, cutout=3)
    first.crop(pictures)
    other = augmentation(flip=True, cutout=3, seed=2)
    assert not torch.equal(other.crop(pictures), augmentation(flip=True, cutout=3).crop(pictures))
    other.load_state_dict(first.state_dict())
    torch.rand(7)  # the global generator plays no part
    for _ in range(2):
        assert torch.equal(first.crop(pictures), other.crop(pictures))
        assert torch.equal(first.blank(pictures.float()), other.blank(pictures.float()))


def test_bytes_become_normal_numbers_in_three_channels() -> None:
    grey = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    found = Normalization.of((0.5,), (0.25,), CPU)(grey)
    torch.testing.assert_close(found, torch.tensor([[[[-2.0, -1.2], [-0.4, 2.0]]]]).expand(1, 3, 2, 2))
    color = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    found = Normalization.of((0.0, 0.5, 1.0), (1.0, 0.5, 0.25), CPU)(color)
    torch.testing.assert_close(found.flatten(), torch.tensor([1.0, 1.0, 0.0]))


def test_an_evaluation_sees_the_middle() -> None:
    picture = torch.arange(48, dtype=torch.uint8).reshape(1, 1, 6, 8)
    normalize = Normalization.of((0.5,), (0.25,), CPU)
    middle = picture[:, :, 1:5, 2:6]
    assert torch.equal(PictureView(normalize, 4).of_step(picture), normalize(middle))


def test_a_resized_crop_is_torchvisions_for_the_same_random_numbers() -> None:
    """RandomResizedCrop.get_params (torchvision 0.28) worked by hand for a picture 400 wide and 300 high."""
    middle = [0.5, 0.5, 0.5, 0.5]
    # 120,000 x 0.54 = 64,800 pixels, square: 254.56 a side; left int(0.5 x 146), top int(0.5 x 46).
    assert resized_crop(400, 300, [middle], least_area=0.08) == (73, 23, 73 + 255, 23 + 255)
    # The whole area in the ratio 4/3; its draws of a place have one outcome.
    assert resized_crop(400, 300, [[1.0, 1.0, 0.9, 0.9]], least_area=0.08) == (0, 0, 400, 300)
    # The least area, 9,600 pixels, in the ratio 3/4: sqrt(7200) = 84.85 and sqrt(12800) = 113.14.
    assert resized_crop(400, 300, [[0.0, 0.0, 0.0, 0.999]], least_area=0.08) == (0, 187, 85, 300)
    # All of the area as a square of 346 is higher than the picture, so the second attempt counts.
    assert resized_crop(400, 300, [[1.0, 0.5, 0.1, 0.1], middle], least_area=0.08) == (73, 23, 328, 278)


@pytest.mark.parametrize(
    ("width", "height", "box"),
    [(400, 300, (0, 0, 400, 300)), (900, 300, (250, 0, 650, 300)), (300, 900, (0, 250, 300, 650))],
)
def test_ten_attempts_that_do_not_fit_give_the_middle(
    width: int, height: int, box: tuple[int, int, int, int]
) -> None:
    """Torchvision takes the nearest ratio in 3/4 to 4/3 to the picture's own."""
    too_high = [[1.0, 0.5, 0.0, 0.0]] * 10
    assert resized_crop(width, height, too_high, least_area=1.0) == box


def test_a_crop_depends_on_seed_epoch_and_picture_alone() -> None:
    crops = ResizedCrops(seed=1, least_area=0.08)
    first = crops.box(400, 300, epoch=0, number=7)
    assert ResizedCrops(seed=1, least_area=0.08).box(400, 300, epoch=0, number=7) == first
    others = [
        crops.box(400, 300, epoch=1, number=7),
        crops.box(400, 300, epoch=0, number=8),
        ResizedCrops(seed=2, least_area=0.08).box(400, 300, epoch=0, number=7),
    ]
    assert len({first, *others}) == 4


def test_processes_that_share_batches_draw_what_one_would() -> None:
    """The last batch of an epoch is smaller, and parts and micro-batches have unequal sizes."""
    pictures = torch.randint(0, 256, (11, 3, 8, 8), generator=torch.Generator().manual_seed(1)).byte()

    def seen(world: World, micro_batch: int = 7) -> tuple[list[Tensor], Tensor]:
        batches = Batches(11, 7, seed=1, device=CPU, world=world)
        augment = augmentation(padding=2, flip=True, cutout=3, seed=1)
        augment.follow(batches)
        of_epoch = [
            torch.cat(
                [
                    augment.blank(augment.crop(pictures[part]).float())
                    for part in world.own_part(batch).split(micro_batch)
                ]
            )
            for batch in batches.rest_of_epoch()
        ]
        return of_epoch, augment.state_dict()["generator"]

    alone, generator = seen(World())
    for size, micro_batch in ((1, 3), (2, 7), (2, 3), (3, 7), (3, 1)):
        ranks = [seen(World(rank, size), micro_batch) for rank in range(size)]
        together = [torch.cat(parts) for parts in zip(*(of_epoch for of_epoch, _ in ranks), strict=True)]
        assert all(torch.equal(*pair) for pair in zip(together, alone, strict=True))
        assert all(torch.equal(found, generator) for _, found in ranks)
