"""Pictures in folders: what is read, in which order and by whom; workers end with the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import Tensor

from kharness.training.data import Batches
from kharness.training.datasets.imagefolder import Options, load
from kharness.training.errors import DatasetError
from resnet50.augmentation import Augmentation, Normalization, PictureView, ResizedCrops
from resnet50.folder import FolderPictures, PictureFiles, resized, square

from ..processes import is_gone
from ..waiting import wait_until
from ..warm_python import WarmPython

CPU = torch.device("cpu")
SIDE = 18


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven pictures of two classes to train on and three to test with, each of one color."""
    train = [*(f"train/cat/{i}.JPEG" for i in range(4)), *(f"train/dog/{i}.png" for i in range(3))]
    for number, name in enumerate([*train, "val/cat/a.jpg", "val/dog/b.jpg", "val/dog/c.jpg"]):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + number, 24), (20 * number, 0, 200)).save(path)
    (tmp_path / "pictures" / "train" / "cat" / "notes.txt").write_text("no picture")
    return tmp_path / "pictures"


def pictures(
    folder: Path, *, readers: int, augmented: bool = False, crops: ResizedCrops | None = None
) -> FolderPictures:
    part = load(Options(str(folder)), Path("/")).train
    augmentation = Augmentation(size=16, padding=0, flip=True, cutout=4, seed=1, device=CPU)
    return FolderPictures(
        PictureFiles(part, torch.arange(len(part.names)), side=16 if crops else SIDE, crops=crops),
        PictureView(Normalization.of((0.0,), (1.0,), CPU), 16, augmentation if augmented else None),
        device=CPU,
        readers=readers,
        ahead=2,
    )


def test_names_labels_and_sizes_are_read_in_order(folder: Path) -> None:
    found = load(Options(str(folder)), Path("/"))
    assert found.classes == ("cat", "dog")
    assert found.train.names == [*(f"cat/{i}.JPEG" for i in range(4)), *(f"dog/{i}.png" for i in range(3))]
    assert (found.train.labels, found.test.labels) == ([0, 0, 0, 0, 1, 1, 1], [0, 1, 1])
    assert load(Options(str(folder)), Path("/")).sha256 == found.sha256
    (folder / "val" / "dog" / "c.jpg").write_bytes(b"another size")
    assert load(Options(str(folder)), Path("/")).sha256 != found.sha256


def test_a_picture_is_scaled_and_its_middle_taken(tmp_path: Path) -> None:
    """Three stripes of color, as wide as they are high: the middle one is left."""
    stripes = np.zeros((40, 120, 3), dtype=np.uint8)
    for i in range(3):
        stripes[:, 40 * i : 40 * i + 40, i] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    found = square(os.fsencode(tmp_path / "stripes.png"), 10)
    assert found.shape == (10, 10, 3)
    assert found[:, 1:-1].reshape(-1, 3).tolist() == [[0, 255, 0]] * 80
    Image.new("L", (33, 65), 7).save(tmp_path / "grey.jpg", quality=100)
    assert square(os.fsencode(tmp_path / "grey.jpg"), 8).reshape(-1, 3).tolist() == [[7, 7, 7]] * 64


def steps(split: FolderPictures, batches: Batches, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    split.follow(batches)
    for indices in islice(batches, count):
        yield split.batch(indices)


def same(found: list[tuple[Tensor, Tensor]], expected: list[tuple[Tensor, Tensor]]) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(a, b) for pair in zip(found, expected, strict=True) for a, b in zip(*pair, strict=True)
    )


def test_workers_read_what_the_training_would_and_resume_at_the_sample(folder: Path) -> None:
    """Three epochs of 3, 3 and 1 pictures; the second training begins in the middle of the second."""
    whole = list(steps(pictures(folder, readers=0), Batches(7, 3, seed=5, device=CPU), 9))
    before = torch.get_rng_state()
    assert same(list(steps(pictures(folder, readers=2), Batches(7, 3, seed=5, device=CPU), 9)), whole)
    assert torch.equal(torch.get_rng_state(), before), "reading ahead draws no random number of the training"
    resumed = Batches(7, 3, seed=5, device=CPU)
    resumed.load_state_dict({"epoch": 1, "position": 2})
    assert same(list(steps(pictures(folder, readers=2), resumed, 4)), whole[5:])
    labels = [label for _, batch in whole[:3] for label in batch.tolist()]
    assert sorted(labels) == [0, 0, 0, 0, 1, 1, 1]


def test_resized_crops_are_the_same_for_any_readers_parts_and_resumed(folder: Path) -> None:
    """The color of each pixel is its place, so no two parts of a picture are alike."""
    places = np.stack([*np.mgrid[:48, :60] * 4, np.zeros((48, 60))], axis=2).astype(np.uint8)
    for path in (folder / "train").glob("*/[0-9].*"):
        Image.fromarray(places).save(path)
    crops = ResizedCrops(seed=3, least_area=0.08)
    whole = list(steps(pictures(folder, readers=0, crops=crops), Batches(7, 4, seed=5, device=CPU), 4))
    assert same(
        list(steps(pictures(folder, readers=2, crops=crops), Batches(7, 4, seed=5, device=CPU), 4)), whole
    )
    resumed = Batches(7, 4, seed=5, device=CPU)
    resumed.load_state_dict({"epoch": 1, "position": 0})
    assert same(list(steps(pictures(folder, readers=0, crops=crops), resumed, 2)), whole[2:])
    looks = {bytes(picture.mul(255).byte().numpy().tobytes()) for batch, _ in whole for picture in batch}
    assert len(looks) == 14, "each look at a picture is another part of it"


def test_a_part_of_a_picture_is_scaled(tmp_path: Path) -> None:
    """The box is in the second stripe, in pixels of the file also where JPEG is decoded smaller."""
    stripes = np.zeros((400, 800, 3), dtype=np.uint8)
    stripes[:, :400, 0] = stripes[:, 400:, 2] = 255
    for name in ("stripes.png", "stripes.jpg"):
        Image.fromarray(stripes).save(tmp_path / name, quality=100)
        sizes: list[tuple[int, int]] = []

        def box(width: int, height: int, sizes: list[tuple[int, int]] = sizes) -> tuple[int, int, int, int]:
            sizes.append((width, height))
            return 420, 20, 780, 380

        found = resized(os.fsencode(tmp_path / name), 8, box)
        assert (sizes, found.shape) == ([(800, 400)], (8, 8, 3))
        assert np.abs(found.astype(int) - [0, 0, 255]).max() <= 3


def test_micro_batches_are_parts_of_a_batch(folder: Path) -> None:
    batches = Batches(7, 4, seed=5, device=CPU)
    (expected,) = steps(pictures(folder, readers=0), batches, 1)
    split = pictures(folder, readers=0)
    batches = Batches(7, 4, seed=5, device=CPU)
    split.follow(batches)
    parts = [split.batch(part) for part in next(iter(batches)).split(3)]
    assert [len(labels) for _, labels in parts] == [3, 1]
    assert torch.equal(torch.cat([part for part, _ in parts]), expected[0])
    with pytest.raises(RuntimeError, match="other pictures are requested"):
        split.batch(torch.tensor([6, 6, 6]))


def test_chunks_are_in_order_and_not_augmented(folder: Path) -> None:
    (first, labels), (second, _) = pictures(folder, readers=1, augmented=True).chunks(4)
    assert (first.shape, second.shape, labels.tolist()) == ((4, 3, 16, 16), (3, 3, 16, 16), [0, 0, 0, 0])
    reds = (torch.cat([first, second])[:, 0, 8, 8] * 255).round()
    assert (reds - torch.arange(7) * 20).abs().max() <= 2, "JPEG is not exact"


@pytest.mark.parametrize("readers", [0, 2])
def test_a_broken_file_is_one_line_that_names_it(folder: Path, readers: int) -> None:
    broken = folder / "train" / "cat" / "2.JPEG"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(DatasetError) as caught:
        list(steps(pictures(folder, readers=readers), Batches(7, 3, seed=5, device=CPU), 3))
    assert str(caught.value).startswith(f"{broken} cannot be decoded: ")
    assert "\n" not in str(caught.value)
    assert caught.value.hint == "replace it by an intact copy; a resumed training needs the same files"


@pytest.mark.parametrize(
    ("remove", "error", "hint"),
    [
        ("val", "val does not exist", "name the folder that holds train/CLASS/*.JPEG and val/CLASS/*.JPEG"),
        ("train/dog", "val/dog is a class without training pictures", "the classes are the folders in "),
        ("train/dog/*", "train/dog holds no pictures", "they end in .jpeg, .jpg, .png, in any case"),
    ],
)
def test_a_folder_that_is_not_complete_is_refused(
    folder: Path, tmp_path: Path, remove: str, error: str, hint: str
) -> None:
    for number, path in enumerate(folder.glob(remove)):
        path.rename(tmp_path / f"removed{number}")
    with pytest.raises(DatasetError) as caught:
        load(Options(str(folder)), Path("/"))
    assert str(caught.value) == f"{folder}/{error}"
    assert caught.value.hint.startswith(hint)


def readers_of(trainer: psutil.Process) -> list[psutil.Process]:
    """Its workers that lead a group of their own; those of an evaluation come and go."""
    found = []
    for child in trainer.children():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(child.pid) == child.pid and child.cmdline() == trainer.cmdline():
                found.append(child)
    return found


def test_workers_end_with_a_trainer_that_is_killed(
    folder: Path, tmp_path: Path, root: Path, warm_torch: WarmPython
) -> None:
    """Until then signals to its group, such as Ctrl-C, do not reach them."""
    flags = ["--dataset", "imagefolder", "--dataset-imagefolder-folder", str(folder), "--batch-size", "3"]
    flags += ["--resnet50-image-size", "16", "--resnet50-width", "4", "--resnet50-blocks", "1 1 1 1"]
    flags += ["--device", "cpu", "--num-threads", "1", "--tracker", "none", "--num-epochs", "10000"]
    flags += ["--resnet50-readers", "2"]
    command = [root / "resnet50" / "train.py", "--run-dir", tmp_path / "run", *flags]
    with warm_torch.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        trainer = psutil.Process(process.pid)
        wait_until(lambda: len(readers_of(trainer)) >= 2)
        readers = readers_of(trainer)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: all(is_gone(reader) for reader in readers))
    assert readers
