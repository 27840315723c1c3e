"""Pictures in folders named for their classes, as ImageNet is unpacked: train/CLASS/*.JPEG and val/CLASS/…"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kharness.config.places import asked_path
from kharness.training.datasets._files import Sources
from kharness.training.errors import DatasetError

# A folder of yours: `make data` looks whether it is complete.
ON_REQUEST = True

SUFFIXES = (".jpeg", ".jpg", ".png")

# The test set is looked at once, after training. ImageNet's own has no labels, so its `val` is taken.
TEST_FOLDERS = ("test", "val")


@dataclass(frozen=True)
class Options:
    """Where the pictures are."""

    folder: str
    """A relative path starts at the repository."""


@dataclass(frozen=True)
class FolderPart:
    """Files in the order of their names, class by class."""

    folder: Path
    names: list[str]
    """`CLASS/FILE`."""
    labels: list[int]


@dataclass(frozen=True)
class PictureFolder:
    """Training and test pictures that are decoded when they are needed."""

    train: FolderPart
    test: FolderPart
    classes: tuple[str, ...]
    """In the order of their names, which gives the labels."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and standard deviation are those of ImageNet's pixels by channel, scaled to 0..1."""
    sha256: str
    """Over the names and sizes of all files: their content is too much to read before each training."""


def fetch(options: Options, root: Path, sources: Sources) -> Path:
    """The folder; DatasetError if it is not complete."""
    load(options, root)
    return _folder(options, root)


def check(options: Options, root: Path) -> None:
    """DatasetError if a folder is missing."""
    _parts(_folder(options, root))


def count(options: Options, root: Path) -> int:
    """Return the number of training pictures; DatasetError like `load`, whose sizes take longer."""
    train, test = _parts(_folder(options, root))
    classes = _classes(train)
    pictures, _ = (sum(len(found) for _, found in _pictures(part, classes)) for part in (train, test))
    return pictures


def load(options: Options, root: Path) -> PictureFolder:
    """Names, labels and sizes of all files; DatasetError where a class is empty or unknown."""
    folder = _folder(options, root)
    train, test = _parts(folder)
    classes = _classes(train)
    content = hashlib.sha256()
    return PictureFolder(
        train=_part(train, classes, content),
        test=_part(test, classes, content),
        classes=classes,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        sha256=content.hexdigest(),
    )


def _folder(options: Options, root: Path) -> Path:
    return root / asked_path("DATASET_IMAGEFOLDER_FOLDER", options.folder)


def _parts(folder: Path) -> tuple[Path, Path]:
    """The folders of the training and the test pictures."""
    test = next(
        (folder / name for name in TEST_FOLDERS if (folder / name).is_dir()), folder / TEST_FOLDERS[-1]
    )
    for part in (folder / "train", test):
        if not part.is_dir():
            raise DatasetError(
                f"{part} does not exist",
                hint="name the folder that holds train/CLASS/*.JPEG and val/CLASS/*.JPEG: "
                "DATASET_IMAGEFOLDER_FOLDER=folder",
            )
    return folder / "train", test


def _classes(train: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in os.scandir(train) if entry.is_dir()))


def _part(folder: Path, classes: tuple[str, ...], content: hashlib._Hash) -> FolderPart:
    names: list[str] = []
    labels: list[int] = []
    for label, found in _pictures(folder, classes):
        name = classes[label]
        for entry in sorted(found, key=lambda entry: entry.name):
            names.append(f"{name}/{entry.name}")
            labels.append(label)
            line = f"{folder.name}/{name}/{entry.name} {entry.stat().st_size}\n"
            content.update(line.encode("utf-8", "surrogateescape"))
    return FolderPart(folder, names, labels)


def _pictures(folder: Path, classes: tuple[str, ...]) -> Iterator[tuple[int, list[os.DirEntry[str]]]]:
    """Labels and pictures of the classes; DatasetError where there are none, or of another class."""
    unknown = sorted(
        entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name not in classes
    )
    if unknown:
        raise DatasetError(
            f"{folder / unknown[0]} is a class without training pictures",
            hint=f"the classes are the folders in {folder.parent / 'train'}",
        )
    some = False
    for label, name in enumerate(classes):
        found = []
        if (folder / name).is_dir():
            with os.scandir(folder / name) as entries:
                found = [entry for entry in entries if entry.name.lower().endswith(SUFFIXES)]
        if not found and folder.name == "train":
            raise DatasetError(
                f"{folder / name} holds no pictures", hint=f"they end in {', '.join(SUFFIXES)}, in any case"
            )
        some |= bool(found)
        yield label, found
    if not some:
        raise DatasetError(f"{folder} holds no pictures", hint="it needs a folder for each class")
