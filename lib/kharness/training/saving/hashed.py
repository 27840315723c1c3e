"""Files of torch.save that are hashed on their way, so that a large one is neither held nor read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from kharness.training.errors import CheckpointError
from monitoring.journal.atomic_file import create

OTHER = "take the checkpoint before it"
"""The hint for one that cannot be used."""


class _HashingFile:
    """torch replaces the error of a write by a RuntimeError of its own, so it is kept here."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def save_hashed(path: Path, state: Mapping[str, Any]) -> str:
    """Make a file with the state, on disk on return; its SHA-256 in hex. OSError if it cannot be written."""
    with create(path) as file:
        hashing = _HashingFile(file)
        try:
            torch.save(dict(state), cast(IO[bytes], hashing))
        except RuntimeError:
            if hashing.error is None:
                raise
            raise hashing.error from None
        file.flush()
        os.fsync(file.fileno())
    return hashing.sha256.hexdigest()


def check_sha256(file: BufferedReader, wanted: str) -> None:
    """CheckpointError unless the SHA-256 of an open file begins with what is wanted."""
    found = hashlib.file_digest(file, "sha256").hexdigest()[: len(wanted)]
    if found != wanted:
        raise CheckpointError(f"{file.name} is damaged: its SHA-256 begins with {found[:16]}", hint=OTHER)
