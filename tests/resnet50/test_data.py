"""Pictures as tensors: splits that no seed changes, borders, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from kharness.config.assignment import Origin
from kharness.config.options import Options
from kharness.config.tree import Tree
from kharness.training.errors import DatasetError
from resnet50.data import HeldPictures, PictureSplits, load_splits

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tree(root: Path) -> Tree:
    return Tree.load(root)


def options(tree: Tree, **changes: str) -> Options:
    given = {"MODEL": "resnet50", "DATASET": "digits", **changes}
    layers = [tree.assignments(*one, Origin("flag", one[0])) for one in given.items()]
    return Options(tree.resolve(*layers), tree=tree)


@pytest.fixture(scope="module")
def digits(root: Path, tree: Tree) -> PictureSplits:
    return load_splits(options(tree), root=root, device=CPU)


def test_splits_of_the_shipped_digits(root: Path, digits: PictureSplits) -> None:
    assert digits.sizes == {"train": 5400, "validation": 600, "test": 1000}
    assert digits.sha256 == "06b18432b1a5514a8658edc95b77a3a2b41f6f8d168e4cfefcb990d5b06ba969"
    assert digits.classes == tuple("0123456789")
    labels = gzip.decompress((root / "lenet5/mnist-subset/train-labels-idx1-ubyte.gz").read_bytes())[8:]
    _, validation = digits.validation.batch(torch.arange(600))
    assert validation.tolist() == list(labels[::10])
    _, train = digits.train.batch(torch.arange(9))
    assert train.tolist() == list(labels[1:10])


def test_an_evaluation_sees_normalized_pictures_with_a_black_border(
    root: Path, digits: PictureSplits
) -> None:
    pixels = gzip.decompress((root / "lenet5/mnist-subset/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    chunks = list(digits.test.chunks(300))
    assert [chunk.shape for chunk, _ in chunks] == [(300, 3, 32, 32)] * 3 + [(100, 3, 32, 32)]
    expected = torch.zeros(32, 32)
    expected[2:30, 2:30] = torch.tensor(list(pixels[: 28 * 28])).reshape(28, 28) / 255
    first = chunks[0][0][0]
    torch.testing.assert_close(first[0], (expected - 0.1307) / 0.3081)
    assert torch.equal(first[0], first[2])


def test_training_pictures_are_augmented_and_others_are_not(digits: PictureSplits) -> None:
    indices = torch.arange(20)
    assert not torch.equal(digits.train.batch(indices)[0], digits.train.batch(indices)[0])
    assert torch.equal(digits.test.batch(indices)[0], digits.test.batch(indices)[0])
    held = digits.test
    assert isinstance(held, HeldPictures)
    assert held.images.dtype == torch.uint8


@pytest.mark.parametrize(
    ("changes", "error", "hint"),
    [
        (
            {"RESNET50_IMAGE_SIZE": "64"},
            "RESNET50_IMAGE_SIZE=64 is more than twice the 28 pixels of the pictures",
            "choose 32 for pictures of 28 or 32 pixels",
        ),
        (
            {"RESNET50_STEM": "imagenet", "BATCH_SIZE": "8", "RESNET50_VALIDATION_FRACTION": "0.0998"},
            "BATCH_SIZE=8 leaves one picture for a step, and RESNET50_STEM=imagenet one pixel of it: "
            "batch norm needs more",
            "choose BATCH_SIZE=9, or RESNET50_STEM=small",
        ),
        (
            {"DATASET": "fashion-mnist", "DATA_DIR": "/nowhere"},
            "/nowhere/fashion-mnist/train-images-idx3-ubyte.gz does not exist",
            "make data CONFIG_MODEL_RESNET50=y fetches it; DATASET=digits needs no download",
        ),
        (
            {"DATASET": "cifar10", "DATA_DIR": "/nowhere"},
            "/nowhere/cifar-10-batches-py or /nowhere/cifar-10-batches-bin does not exist, "
            "or not with all its files",
            "make data CONFIG_MODEL_RESNET50=y CONFIG_DATASET=cifar10, or unpack it there",
        ),
    ],
    ids=["size", "one", "fashion", "cifar"],
)
def test_what_cannot_be_trained_on_is_refused(
    root: Path, tree: Tree, changes: dict[str, str], error: str, hint: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        load_splits(options(tree, **changes), root=root, device=CPU)
    assert (str(caught.value), caught.value.hint) == (error, hint)
