"""Checkpoints of parts: what a file from elsewhere may hold, and what it may not."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from kharness.training.checkpoint import load
from kharness.training.errors import CheckpointError
from kharness.training.saving.shards import with_values, write_shards

WEIGHTS = torch.arange(6.0).reshape(3, 2)


class Hostile:
    """Makes a folder where it is read as a pickle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def like(tmp_path: Path) -> Iterator[Tensor]:
    """A sharded tensor, all of it on this one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield distribute_tensor(WEIGHTS, init_device_mesh("cpu", (1,)), [Shard(0)])
    dist.destroy_process_group()


@pytest.fixture
def checkpoint(like: Tensor, tmp_path: Path) -> Path:
    return write_shards(tmp_path, "attempt01-step00000003", {"format": 1, "model": {"w": like}})


def with_files(checkpoint: Path, **contents: bytes) -> Path:
    """The checkpoint with other files in it, and sums and name as if it had been written so."""
    for name, content in contents.items():
        (checkpoint / name).write_bytes(content)
    named = [path for path in checkpoint.iterdir() if path.name != "SHA256SUMS"]
    return with_sums(checkpoint, {path.name: path.read_bytes() for path in named})


def with_sums(checkpoint: Path, files: dict[str, bytes]) -> Path:
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    (checkpoint / "SHA256SUMS").write_text(sums)
    stem = checkpoint.name.rpartition("-")[0]
    return checkpoint.rename(
        checkpoint.with_name(f"{stem}-{hashlib.sha256(sums.encode()).hexdigest()[:16]}.dcp")
    )


def index_of(checkpoint: Path) -> Metadata:
    return FileSystemReader(checkpoint).read_metadata()


def test_index_is_read_as_torch_reads_it(checkpoint: Path, like: Tensor) -> None:
    found = with_values(load(checkpoint), lambda path: like if path == ("model", "w") else None)
    assert torch.equal(found["model"]["w"].full_tensor(), WEIGHTS)
    alone = with_values(load(checkpoint), lambda path: None)
    assert torch.equal(alone["model"]["w"], WEIGHTS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool], ids=str)
def test_every_type_of_tensor_is_taken(like: Tensor, tmp_path: Path, dtype: torch.dtype) -> None:
    path = write_shards(tmp_path, "attempt01-step00000003", {"format": 1, "model": {"w": like.to(dtype)}})
    assert with_values(load(path), lambda path: None)["model"]["w"].dtype == dtype


def test_code_in_the_index_is_not_run(checkpoint: Path, tmp_path: Path) -> None:
    hostile = with_files(checkpoint, **{".metadata": pickle.dumps(Hostile(tmp_path / "made"))})
    with pytest.raises(CheckpointError, match=r"cannot be read: \.metadata asks for posix\.mkdir"):
        load(hostile)
    assert not (tmp_path / "made").exists()


def test_code_in_an_entry_that_is_no_tensor_is_not_run(checkpoint: Path, tmp_path: Path) -> None:
    """torch reads such entries by a full unpickler, also where a tensor is asked for."""
    file = io.BytesIO()
    torch.save(Hostile(tmp_path / "made"), file)
    index = index_of(checkpoint)
    index.state_dict_metadata["model/w"] = BytesStorageMetadata()
    index.storage_data = {MetadataIndex("model/w"): _StorageInfo("__0_0.distcp", 0, len(file.getvalue()))}
    hostile = with_files(checkpoint, **{".metadata": pickle.dumps(index), "__0_0.distcp": file.getvalue()})
    with pytest.raises(CheckpointError, match=r"\.metadata asks for .*\.BytesStorageMetadata"):
        load(hostile)
    assert not (tmp_path / "made").exists()


class ByName(pickle.Pickler):
    """Pickles a member of an enumeration as Python 3.11.0 to 3.11.3 did, Debian 12's among them."""

    def reducer_override(self, given: object) -> Any:
        return (getattr, (type(given), given.name)) if isinstance(given, Enum) else NotImplemented


def test_members_that_were_pickled_by_name_are_taken(checkpoint: Path) -> None:
    file = io.BytesIO()
    ByName(file).dump(index_of(checkpoint))
    assert b"getattr" in file.getvalue()
    found = with_values(load(with_files(checkpoint, **{".metadata": file.getvalue()})), lambda path: None)
    assert torch.equal(found["model"]["w"], WEIGHTS)


def test_nothing_else_is_looked_up_by_name(checkpoint: Path) -> None:
    hostile = with_files(
        checkpoint, **{".metadata": b"\x80\x04cbuiltins\ngetattr\n(ctorch\nSize\nVcount\ntR."}
    )
    with pytest.raises(CheckpointError, match=r"\.metadata asks for count of <class 'torch\.Size'>"):
        load(hostile)


def test_files_outside_of_the_checkpoint_are_not_read(checkpoint: Path) -> None:
    index = index_of(checkpoint)
    for place in index.storage_data.values():
        place.relative_path = "../other.distcp"
    with pytest.raises(CheckpointError, match=r"names a file that is not a part: .*\.\./other\.distcp"):
        load(with_files(checkpoint, **{".metadata": pickle.dumps(index)}))


@pytest.mark.parametrize("name", ["/dev/zero", "../other.distcp", ".", "absent", "link"])
def test_sums_name_files_beside_them(checkpoint: Path, name: str) -> None:
    (checkpoint / "link").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="which is no file beside it"):
        load(with_sums(checkpoint, {name: b""}))


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"cos\nsystem\n.", pickle.dumps([1]), b"(" * 9999])
def test_what_is_no_index_is_refused_in_a_line(checkpoint: Path, content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read: "):
        load(with_files(checkpoint, **{".metadata": content}))
