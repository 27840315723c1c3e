"""The four files of MNIST and of its parts, as arrays; and how a class-balanced part is chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kharness.training.datasets._files import (
    DataFolder,
    Dataset,
    DatasetFile,
    IdxArray,
    Sources,
    read_verified,
)

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"


def mnist_files(*sha256: str, train: int, test: int) -> tuple[DatasetFile, ...]:
    """The files of so many pictures: 28 x 28 bytes each after a header of 16, a byte per label after 8."""
    names = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
    sizes = (784 * train + 16, train + 8, 784 * test + 16, test + 8)
    return tuple(map(DatasetFile, names, sha256, sizes))


@dataclass(frozen=True)
class Mnist:
    """The four arrays: images (n, 28, 28), labels (n) from 0 to 9."""

    train_images: IdxArray
    train_labels: IdxArray
    test_images: IdxArray
    test_labels: IdxArray
    sha256: str = ""
    """Which data this is; empty for what was not read from files."""


@dataclass(frozen=True)
class FetchedDigits:
    """Such a dataset, whose files `make data` fetches into a folder of its name."""

    dataset: Dataset
    hint: str
    """Hint for a missing file."""

    def fetch(self, options: DataFolder, root: Path, sources: Sources) -> Path:
        """The folder of the verified files, those that are missing or damaged fetched from `sources`."""
        # not above: trainings and the checks before a matrix need no HTTP client, which takes long to import
        from kharness.training.datasets._fetch import fetch_files

        return fetch_files(self.dataset, self._folder(options, root), sources)

    def check(self, options: DataFolder, root: Path) -> None:
        """DatasetError if a file is missing."""
        self.dataset.check(self._folder(options, root), hint=self.hint)

    def count(self, options: DataFolder, root: Path) -> int:
        """Training pictures."""
        return count_digits(self.dataset)

    def load(self, options: DataFolder, root: Path) -> Mnist:
        """The verified arrays; DatasetError if a file is missing or damaged."""
        return read_digits(self.dataset, self._folder(options, root), hint=self.hint)

    def _folder(self, options: DataFolder, root: Path) -> Path:
        return options.folder(root) / self.dataset.name


def count_digits(dataset: Dataset) -> int:
    """Training pictures of a dataset's files: a label is a byte, after a header of 8."""
    return next(file.size for file in dataset.files if file.name == TRAIN_LABELS) - 8


def read_digits(dataset: Dataset, folder: Path, *, hint: str) -> Mnist:
    """The arrays of a dataset's files; DatasetError, with this hint, if one is missing or damaged."""
    contents = [(file.name, read_verified(folder, file, hint=hint)) for file in dataset.files]
    first, second, third, fourth = (IdxArray.parse(content, name=name) for name, content in contents)
    return Mnist(first, second, third, fourth, sha256=dataset.sha256)


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
