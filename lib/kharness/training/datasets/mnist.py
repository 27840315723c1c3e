"""MNIST: 60,000 training and 10,000 test images of handwritten digits.

Y. LeCun, C. Cortes, C. J. C. Burges; see lenet5/mnist-subset/README.md for provenance and licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._digits import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    Mnist,
    read_digits,
)
from kharness.training.datasets._files import Dataset, DatasetFile, Sources

HINT = "make data fetches it; DATASET=mnist-subset needs no download"

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
)


@dataclass(frozen=True)
class Options:
    """Where the files are."""

    data_dir: str = "data"
    """Folder of all datasets; a relative path starts at the repository."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder of the verified files, those that are missing or damaged fetched from `sources`."""
    # not above: trainings and the checks before a matrix need no HTTP client, which takes long to import
    from kharness.training.datasets._fetch import fetch_files

    return fetch_files(MNIST, _folder(options, root), sources)


def check(options: Options, root: Path) -> None:
    """DatasetError if a file is missing."""
    MNIST.check(_folder(options, root), hint=HINT)


def load(options: Options, root: Path) -> Mnist:
    """The verified arrays; DatasetError if a file is missing or damaged."""
    return read_digits(MNIST, _folder(options, root), hint=HINT)


def _folder(options: Options, root: Path) -> Path:
    return root / asked_path("DATA_DIR", options.data_dir) / MNIST.name
