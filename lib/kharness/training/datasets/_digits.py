"""Sets in the format of MNIST, four files of arrays; and how a class-balanced part is chosen."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from kharness.training.datasets._files import Dataset, DatasetFile, Sources, read_verified
from kharness.training.datasets._pictures import Bytes, PictureSet
from kharness.training.errors import DatasetError

# IDX, the format of the MNIST files: two zero bytes, type 8 (unsigned byte), number of dimensions, then
# each dimension as a big-endian 32-bit integer. http://yann.lecun.com/exdb/mnist/
_UNSIGNED_BYTES = b"\0\0\x08"

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
class Digits:
    """Such a set: what its dataset offers."""

    dataset: Dataset
    hint: str
    """Hint for a missing file."""
    classes: tuple[str, ...] = tuple("0123456789")
    mean: float = 0.1307
    std: float = 0.3081
    """Mean and standard deviation of the training pixels; MNIST's if nothing else is said."""
    shipped: str = ""
    """Folder in the repository; empty for one of the set's name in that of all datasets."""

    def fetch(self, options: Any, root: Path, sources: Sources) -> Path:
        """The folder of the verified files; those that are not shipped are fetched if missing or damaged."""
        # not above: trainings and the checks before a matrix need no HTTP client, which takes long to import
        from kharness.training.datasets._fetch import fetch_files

        if not self.shipped:
            return fetch_files(self.dataset, self._folder(options, root), sources)
        self.load(options, root)
        return self._folder(options, root)

    def check(self, options: Any, root: Path) -> None:
        """DatasetError if a file is missing."""
        self.dataset.check(self._folder(options, root), hint=self.hint)

    def count(self, options: Any, root: Path) -> int:
        """Training pictures: a label is a byte, after a header of 8."""
        return next(file.size for file in self.dataset.files if file.name == TRAIN_LABELS) - 8

    def load(self, options: Any, root: Path) -> PictureSet:
        """The verified arrays; DatasetError if a file is missing or damaged."""
        return self.read(self._folder(options, root))

    def read(self, folder: Path) -> PictureSet:
        """The arrays in any folder; DatasetError if a file is missing or damaged."""
        first, second, third, fourth = (
            read_idx(read_verified(folder, file, hint=self.hint), name=file.name)
            for file in self.dataset.files
        )
        about = self.classes, (self.mean,), (self.std,), self.dataset.sha256
        return PictureSet(first, second, third, fourth, *about)

    def _folder(self, options: Any, root: Path) -> Path:
        return root / self.shipped if self.shipped else Path(options.folder(root) / self.dataset.name)


def read_idx(content: bytes, *, name: str) -> Bytes:
    """The array in the bytes of an IDX file; DatasetError names what is wrong with `name`."""
    import numpy as np  # not above, as in _pictures.py

    if len(content) < 4 or not content.startswith(_UNSIGNED_BYTES):
        raise DatasetError(f"{name}: not an IDX file of unsigned bytes", hint="fetch the file again")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DatasetError(f"{name}: the IDX header is cut short", hint="fetch the file again")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != prod(shape):
        raise DatasetError(
            f"{name}: {len(content) - start} bytes where its header {shape} needs {prod(shape)}",
            hint="fetch the file again",
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx_bytes(array: Bytes) -> bytes:
    """The content of an IDX file."""
    header = struct.pack(f">B{array.ndim}I", array.ndim, *array.shape)
    return _UNSIGNED_BYTES + header + array.tobytes()


def subset(full: PictureSet, *, train_per_class: int, test_per_class: int, seed: int) -> PictureSet:
    """A class-balanced part, its images in the order of the full set."""
    train = balanced_choice(full.train_labels.tolist(), per_class=train_per_class, key=f"{seed} train")
    test = balanced_choice(full.test_labels.tolist(), per_class=test_per_class, key=f"{seed} test")
    return replace(
        full,
        train_images=full.train_images[train],
        train_labels=full.train_labels[train],
        test_images=full.test_images[test],
        test_labels=full.test_labels[test],
    )


def balanced_choice(labels: Iterable[int], *, per_class: int, key: str) -> list[int]:
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
