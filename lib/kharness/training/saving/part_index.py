"""Where each tensor's parts are: the `.metadata` file of torch.distributed.checkpoint, read as data.

The file is a pickle, which can run any code, and torch reads it as one. A checkpoint may come from anywhere,
so here only the classes that torch writes for tensors are looked up, and whatever else it asks for is
refused: also entries that are no tensors (`BytesStorageMetadata`), whose content is a pickle again.
"""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as written
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

NAME = ".metadata"

_CLASSES = (
    *(written.ChunkStorageMetadata, written.Metadata, written.MetadataIndex, written.StorageMeta),
    *(
        written.TensorProperties,
        TensorStorageMetadata,
        written._MEM_FORMAT_ENCODING,
        _StorageInfo,
        torch.Size,
    ),
)


def _member(kind: object, name: str) -> object:
    """A member of torch's one enumeration, as Python 3.11.0 to 3.11.3 pickled it: by `getattr`."""
    if kind is not written._MEM_FORMAT_ENCODING:
        raise pickle.UnpicklingError(f"{NAME} asks for {name} of {kind!r}")
    return written._MEM_FORMAT_ENCODING[name]


_TAKEN: dict[tuple[str, str], Callable[..., object]] = {
    **{(each.__module__, each.__qualname__): each for each in _CLASSES},
    ("builtins", "getattr"): _member,
    ("torch.serialization", "_get_layout"): lambda name: _layouts()[name],
    # Where it was written; one module until Python 3.12, another from 3.13 on.
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
    ("pathlib._local", "PosixPath"): pathlib.PurePosixPath,
}


def read_index(folder: Path, files: Collection[str]) -> Metadata:
    """The index of the parts in a folder; UnpicklingError if it is more than places of tensors in `files`."""
    with (folder / NAME).open("rb") as file:
        try:
            found = _IndexUnpickler(file).load()
            _refuse_others(found, files)
        except (
            *(
                ArithmeticError,
                AssertionError,
                AttributeError,
                EOFError,
                ImportError,
                LookupError,
                MemoryError,
            ),
            *(RecursionError, RuntimeError, TypeError, ValueError),
        ) as error:
            raise pickle.UnpicklingError(f"{NAME} is not an index of tensors: {error}") from error
    index: Metadata = found
    return index


class PartReader(FileSystemReader):
    """torch's reader of parts, with the index read as data."""

    def __init__(self, folder: Path, files: Collection[str]) -> None:
        super().__init__(folder)
        self._folder = folder
        self._files = files

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index of the folder, as `read_index` gives it."""
        return read_index(self._folder, self._files)


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        try:
            return _TAKEN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{NAME} asks for {module}.{name}") from None


def _refuse_others(index: object, files: Collection[str]) -> None:
    """A path may lead anywhere."""
    if not isinstance(index, Metadata):
        raise TypeError(f"it holds a {type(index).__name__}")
    for place in index.storage_data.values():
        if type(place) is not _StorageInfo or place.relative_path not in files:
            raise pickle.UnpicklingError(f"{NAME} names a file that is not a part: {place!r}")


def _layouts() -> dict[str, torch.layout]:
    return {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
