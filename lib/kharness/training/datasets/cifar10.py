"""CIFAR-10: 50,000 training and 10,000 test pictures of 10 classes, 32x32 in colour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._files import Sources
from kharness.training.datasets._pictures import PictureSet
from kharness.training.datasets._pictures.cifar import Cifar

CIFAR10 = Cifar(
    name="CIFAR-10",
    python_folder="cifar-10-batches-py",
    python_files=(tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)),
    label_key=b"labels",
    names_file="batches.meta",
    names_key=b"label_names",
    binary_folder="cifar-10-batches-bin",
    binary_files=(tuple(f"data_batch_{number}.bin" for number in range(1, 6)), ("test_batch.bin",)),
    binary_names="batches.meta.txt",
    label_bytes=1,
    num_classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

# You unpack the official archive; `make data` looks whether it is intact.
ON_REQUEST = True


@dataclass(frozen=True)
class Options:
    """Where the files are."""

    data_dir: str = "data"
    """Folder of all datasets; a relative path starts at the repository."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder in which the archive was unpacked; DatasetError if a file is missing or damaged."""
    load(options, root)
    return CIFAR10.find(_places(options, root))[0]


def check(options: Options, root: Path) -> None:
    """DatasetError if a file is missing."""
    CIFAR10.find(_places(options, root))


def load(options: Options, root: Path) -> PictureSet:
    """The pictures; DatasetError if a file is missing or damaged."""
    return CIFAR10.load(_places(options, root))


def _places(options: Options, root: Path) -> list[Path]:
    folder = root / asked_path("DATA_DIR", options.data_dir)
    return [folder, folder / "cifar10"]
