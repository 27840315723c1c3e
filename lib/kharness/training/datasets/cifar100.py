"""CIFAR-100: 50,000 training and 10,000 test pictures of 100 classes, 32x32 in colour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._files import Sources
from kharness.training.datasets._pictures import PictureSet
from kharness.training.datasets._pictures.cifar import Cifar

CIFAR100 = Cifar(
    name="CIFAR-100",
    python_folder="cifar-100-python",
    python_files=(("train",), ("test",)),
    label_key=b"fine_labels",
    names_file="meta",
    names_key=b"fine_label_names",
    binary_folder="cifar-100-binary",
    binary_files=(("train.bin",), ("test.bin",)),
    binary_names="fine_label_names.txt",
    label_bytes=2,
    num_classes=100,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
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
    return CIFAR100.find(_places(options, root))[0]


def check(options: Options, root: Path) -> None:
    """DatasetError if a file is missing."""
    CIFAR100.find(_places(options, root))


def load(options: Options, root: Path) -> PictureSet:
    """The pictures; DatasetError if a file is missing or damaged."""
    return CIFAR100.load(_places(options, root))


def _places(options: Options, root: Path) -> list[Path]:
    folder = root / asked_path("DATA_DIR", options.data_dir)
    return [folder, folder / "cifar100"]
