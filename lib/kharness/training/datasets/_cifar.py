"""CIFAR-10 and CIFAR-100 in both of their official formats, the one for Python and the binary one.

A. Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html describes the formats. The files for Python
are pickles, which can run any code: from them only plain values and arrays are taken.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kharness.training.datasets._fetch import fetch_files
from kharness.training.datasets._files import DataFolder, Dataset, DatasetFile, Sources
from kharness.training.datasets._pictures import Bytes, PictureSet
from kharness.training.errors import DatasetError
from monitoring.journal.atomic_file import write_atomically

SHAPE = (3, 32, 32)
_PICTURE_BYTES = 3 * 32 * 32


def official(name: str, file: str, *, sha256: str, size: int) -> Dataset:
    """The archive of one of the two sets at its author's."""
    return Dataset(name, (DatasetFile(file, sha256, size, suffix=""),), ("https://www.cs.toronto.edu/~kriz",))


@dataclass(frozen=True)
class Cifar:
    """The files of one of the two sets, in their official folders."""

    name: str
    folder: str
    """In the folder of all datasets, which may also hold the files itself."""
    python_folder: str
    python_files: tuple[tuple[str, ...], tuple[str, ...]]
    """Those of the training pictures, and those of the test pictures."""
    label_key: bytes
    names_file: str
    """File of the Python format with the class names."""
    names_key: bytes
    binary_folder: str
    binary_files: tuple[tuple[str, ...], tuple[str, ...]]
    binary_names: str
    """A text, one name per line."""
    label_bytes: int
    """Before each picture of the binary format; the last of them is the label."""
    num_classes: int
    archive: Dataset
    """The official archive of the files for Python, as one file."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def fetch(self, options: DataFolder, root: Path, sources: Sources) -> Path:
        """The folder with its files, those of the official archive where there are none.

        DatasetError if no source has that archive, and if a file that is there is damaged.
        """

        def is_there() -> bool:
            with suppress(DatasetError):
                self.check(options, root)
                return True
            return False

        if not is_there():
            folder = options.folder(root) / self.folder
            fetch_files(self.archive, folder, sources, is_there=is_there, unpack=self._unpack)
        self.load(options, root)
        return self.find(self._places(options, root))[0]

    def _unpack(self, folder: Path) -> None:
        """Take the files for Python out of the verified archive, which then goes."""
        archive = folder / self.archive.files[0].name
        wanted = {f"{self.python_folder}/{name}" for name in (*chain(*self.python_files), self.names_file)}
        (folder / self.python_folder).mkdir(exist_ok=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name in wanted and (content := tar.extractfile(member)) is not None:
                    write_atomically(folder / member.name, content.read())
        archive.unlink()

    def check(self, options: DataFolder, root: Path) -> None:
        """DatasetError if a file is missing."""
        self.find(self._places(options, root))

    def count(self, options: DataFolder, root: Path) -> int:
        """Training pictures, by the sizes of binary files and by reading those for Python."""
        folder, is_binary = self.find(self._places(options, root))
        if is_binary:
            size = sum((folder / name).stat().st_size for name in self.binary_files[0])
            return size // (self.label_bytes + _PICTURE_BYTES)
        return sum(len(self._read(folder / name, is_binary)[1]) for name in self.python_files[0])

    def load(self, options: DataFolder, root: Path) -> PictureSet:
        """The pictures; DatasetError if a file is missing or damaged."""
        return self.read(self._places(options, root))

    def _places(self, options: DataFolder, root: Path) -> list[Path]:
        return [options.folder(root), options.folder(root) / self.folder]

    def find(self, places: Sequence[Path]) -> tuple[Path, bool]:
        """The folder that has every file, and whether they are in the binary format; DatasetError if none."""
        wanted = {self.python_folder: (self.python_files, self.names_file)}
        wanted[self.binary_folder] = (self.binary_files, self.binary_names)
        for folder, (files, names) in wanted.items():
            for place in places:
                needed = [*files[0], *files[1], names]
                if all((place / folder / name).is_file() for name in needed):
                    return place / folder, folder == self.binary_folder
        shown = " or ".join(f"{places[0] / folder}" for folder in wanted)
        raise DatasetError(
            f"{shown} does not exist, or not with all its files",
            hint=f"make data CONFIG_MODEL_RESNET50=y CONFIG_DATASET={self.folder}, or unpack it there",
        )

    def read(self, places: Sequence[Path]) -> PictureSet:
        """The pictures; DatasetError where a file is missing or is not what its format says."""
        folder, is_binary = self.find(places)
        parts = [
            [self._read(folder / name, is_binary) for name in names]
            for names in (self.binary_files if is_binary else self.python_files)
        ]
        arrays = [np.concatenate([found[which] for found in part]) for part in parts for which in (0, 1)]
        classes = self._names(folder, is_binary)
        content = hashlib.sha256()
        for array in arrays:
            content.update(array.data)
        first, second, third, fourth = arrays
        about = classes, self.mean, self.std, content.hexdigest()
        return PictureSet(first, second, third, fourth, *about)

    def _read(self, path: Path, is_binary: bool) -> tuple[Bytes, Bytes]:
        """Pictures (n, 3, 32, 32) and labels (n) of a file."""
        content = path.read_bytes()
        pictures, labels = self._from_binary(content) if is_binary else self._from_pickle(path, content)
        if (
            not len(labels)
            or pictures.size != len(labels) * _PICTURE_BYTES
            or max(labels) >= self.num_classes
        ):
            raise DatasetError(
                f"{path}: {pictures.size:,} bytes and {len(labels):,} labels are no pictures of {self.name}",
                hint="unpack the official archive again",
            )
        return pictures.reshape(-1, *SHAPE), labels

    def _from_binary(self, content: bytes) -> tuple[Bytes, Bytes]:
        found, step = np.frombuffer(content, np.uint8), self.label_bytes + _PICTURE_BYTES
        whole = len(found) // step * step
        rows = found[:whole].reshape(-1, step)
        # What is left over makes the sizes disagree.
        pictures = np.concatenate([rows[:, self.label_bytes :].reshape(-1), found[whole:]])
        # CIFAR-100 has the coarse label before the fine one; only the fine one is trained on.
        return pictures, rows[:, self.label_bytes - 1]

    def _from_pickle(self, path: Path, content: bytes) -> tuple[Bytes, Bytes]:
        found, nothing = unpickled(path, content), np.empty(0, np.uint8)
        pictures, labels = found.get(b"data"), found.get(self.label_key)
        if not isinstance(pictures, np.ndarray) or not isinstance(labels, list):
            return nothing, nothing
        pictures = pictures if pictures.dtype == np.uint8 else nothing
        try:
            return pictures, np.frombuffer(bytes(labels), np.uint8)
        except (TypeError, ValueError):  # labels that are no small numbers
            return pictures, nothing

    def _names(self, folder: Path, is_binary: bool) -> tuple[str, ...]:
        if is_binary:
            names = (folder / self.binary_names).read_text().split()
        else:
            path = folder / self.names_file
            found = unpickled(path, path.read_bytes()).get(self.names_key)
            names = [_text(name) for name in found] if isinstance(found, list) else []
        return tuple(names) if len(names) == self.num_classes else tuple(map(str, range(self.num_classes)))


# What the official pickles name, which an early NumPy wrote; and what NumPy 2 and Python 3 name for the same.
_ARRAY = np.empty(0).__reduce__()[0]
_TAKEN: Mapping[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    # Python 3 writes bytes so into a pickle of protocol 2, which knows only text.
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _TAKEN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def unpickled(path: Path, content: bytes) -> Mapping[Any, Any]:
    """The mapping in a pickle of plain values and byte arrays; DatasetError for any other."""
    try:
        # As bytes, since the texts of Python 2 in these pickles are the pixels, which no text encoding keeps.
        found = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
    ) as e:
        raise DatasetError(
            f"{path} is not a file of CIFAR: {e}", hint="unpack the official archive again"
        ) from e
    return {_bytes(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value
