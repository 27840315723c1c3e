"""Sharded checkpoints: each rank's part in one directory, its tensors by torch.distributed.checkpoint.

    attempt01-step00000425-1f0c….dcp/
      __0_0.distcp, __1_0.distcp …   the parts of the ranks, and where each tensor's are: .metadata
      state.pt                       everything else, by torch.save; sharded tensors have no values in it
      SHA256SUMS                     of these files, as `sha256sum -c` reads it

The name has the first 16 hex digits of the SHA-256 of SHA256SUMS, so that one rename makes all of it complete
and verifiable. `python -m torch.distributed.checkpoint.format_utils dcp_to_torch` makes one file of the
tensors, each under its path in the state, as `model/h.0.attn.c_attn.weight`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from kharness.training.errors import CheckpointError
from kharness.training.saving.hashed import OTHER, Keys, check_sha256, leaves, save_hashed
from kharness.training.saving.sharded import is_sharded, part
from monitoring.journal.atomic_file import create, name_beside, sync_folder

SUFFIX = ".dcp"
_STATE, _SUMS = "state.pt", "SHA256SUMS"

_T = TypeVar("_T")


def is_shared(state: Mapping[str, Any]) -> bool:
    """Whether any tensor of the state is sharded."""
    return any(is_sharded(leaf) for _, leaf in leaves(state))


def write_shards(directory: Path, stem: str, state: Mapping[str, Any]) -> Path:
    """Write the state of all ranks, each its part; every rank calls it, and returns when all is on disk.

    What is not sharded is rank 0's. OSError, on all ranks, if one of them cannot write its part.
    """
    parts = {_key(path): leaf for path, leaf in leaves(state) if is_sharded(leaf)}
    # The random name of rank 0: all ranks write into one directory.
    name = _on_all_ranks(lambda: name_beside(directory / stem).name)[0]
    temporary = directory / name
    # Every step is a collective, also for a rank that failed in the one before: a rank that returned alone
    # would leave the others in the next collective until its timeout.
    try:
        _on_all_ranks(lambda: temporary.mkdir(parents=True, exist_ok=True))
        _write_parts(temporary, parts)
        rank = dist.get_rank()
        # torch.distributed.checkpoint names the files of a rank __RANK_N.distcp
        own = _on_all_ranks(lambda: _sums(sorted(temporary.glob(f"__{rank}_*.distcp"))))
        sums = {name: value for of_rank in own for name, value in of_rank.items()}
        [path, *_] = _on_all_ranks(
            lambda: _complete(temporary, stem, state, sums) if rank == 0 else temporary
        )
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def read_shards(folder: Path) -> dict[str, Any]:
    """The state without the values of what is sharded, which `with_values` reads.

    CheckpointError or UnpicklingError if it is damaged, or holds what no checkpoint needs.
    """
    from kharness.training.saving.part_index import read_index

    wanted = folder.stem.rpartition("-")[2]
    # From the name to the sums, from the sums to the files: the hash in the name vouches for every byte.
    with (folder / _SUMS).open("rb") as file:
        check_sha256(file, wanted)
    sums = _sums_of(folder)
    for name, sha256 in sums.items():
        with (folder / name).open("rb") as file:
            check_sha256(file, sha256)
    read_index(folder, sums)
    state: dict[str, Any] = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    return {**state, "folder": folder}


def with_values(state: Mapping[str, Any], layout: Callable[[Keys], Tensor | None]) -> dict[str, Any]:
    """The state with tensors as this process is to have them: its part where `layout` is sharded, else all.

    `layout` gives the tensor that the one at a path is laid out like. All ranks call it where one is sharded.
    ValueError where a shape differs from that tensor's.
    """
    to_read: dict[str, Tensor] = {}

    def placed(path: Keys, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        like = layout(path)
        # sharded when it was saved: the state has its shape alone (`_complete`)
        if leaf.is_meta:
            to_read[_key(path)] = found = _empty(path, leaf, like)
            return found
        if like is not None and is_sharded(like) and leaf.shape == like.shape:
            return part(leaf, like)
        return leaf

    found: dict[str, Any] = _mapped(state, (), placed)
    if to_read:
        _read_parts(Path(state["folder"]), to_read)
    return found


def keep_also_as(folder: Path, other: Path) -> None:
    """A second name for the same files; copies where the file system has no hard links."""
    temporary = name_beside(other)
    try:
        shutil.copytree(folder, temporary, copy_function=link)
    except shutil.Error as error:
        raise OSError(errno.EIO, str(error.args[0][0][2])) from error
    sync_folder(temporary)
    # Last, after its files are on disk: a crash before it leaves a temporary directory, which no reader
    # takes.
    os.replace(temporary, other)


def remove_shards(folder: Path) -> None:
    """Delete a directory; what a process that is killed leaves of it is no checkpoint."""
    hidden = name_beside(folder)
    os.replace(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def identity(path: Path) -> int:
    """The same number for all names of one checkpoint, as long as they are the same files."""
    return (path / _SUMS if path.suffix == SUFFIX else path).stat().st_ino


def _complete(temporary: Path, stem: str, state: Mapping[str, Any], sums: dict[str, str]) -> Path:
    """Finish on rank 0: write the unsharded state and the hashes of all files, then rename it into place."""

    def unsharded(_: Keys, leaf: Any) -> Any:
        return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta") if is_sharded(leaf) else leaf

    rest = _mapped(state, (), unsharded)
    sums = {**sums, **_sums([temporary / ".metadata"]), _STATE: save_hashed(temporary / _STATE, rest)}
    content = "".join(f"{value}  {name}\n" for name, value in sorted(sums.items())).encode()
    with create(temporary / _SUMS) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(temporary)
    path = temporary.with_name(f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}{SUFFIX}")
    os.replace(temporary, path)
    return path


def _write_parts(folder: Path, parts: Mapping[str, Tensor]) -> None:
    # Here, as below: it takes time, and most trainings do without.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True)
    try:
        save(dict(parts), storage_writer=writer)
    except CheckpointException as error:  # the same on all ranks
        rank, (failure, _) = min(error.failures.items())
        raise _on_rank(rank, failure) from error


def _read_parts(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Into the tensors: of sharded ones each rank its own parts, of others each process all by itself."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    from kharness.training.saving.part_index import PartReader

    alone = not any(map(is_sharded, tensors.values()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        try:
            load(tensors, storage_reader=PartReader(folder, _sums_of(folder)), no_dist=alone)
        except CheckpointException as error:
            first = next(str(failure) for failure, _ in error.failures.values())
            raise ValueError(f"{folder} cannot be read: {first}") from error


def _empty(path: Keys, leaf: Tensor, like: Tensor | None) -> Tensor:
    if like is not None and like.shape != leaf.shape:
        raise ValueError(f"{_key(path)} has the shape {list(leaf.shape)}, not {list(like.shape)}")
    if like is not None and is_sharded(like):
        return torch.empty_like(like, dtype=leaf.dtype)
    return torch.empty(leaf.shape, dtype=leaf.dtype)


def _mapped(value: Any, path: Keys, change: Callable[[Keys, Any], Any]) -> Any:
    """A copy of mappings and sequences, whose leaves are what `change` makes of them."""
    if isinstance(value, Mapping):
        return {key: _mapped(item, (*path, key), change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, (*path, index), change) for index, item in enumerate(value))
    return change(path, value)


def _key(path: Keys) -> str:
    return "/".join(map(str, path))


def _sums(files: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _sums_of(folder: Path) -> dict[str, str]:
    """File -> SHA-256, as the folder lists them; CheckpointError for a name that is not of a file in it."""
    lines = (line.partition("  ") for line in (folder / _SUMS).read_text().splitlines())
    sums = {name: sha256 for sha256, _, name in lines}
    for name in sums:
        # A listed name is read from: it must not lead out of the folder.
        if name != Path(name).name or (folder / name).is_symlink() or not (folder / name).is_file():
            raise CheckpointError(f"{folder / _SUMS} names {name!r}, which is no file beside it", hint=OTHER)
    return sums


def link(source: str | Path, target: str | Path) -> None:
    """A second name for a file; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _on_rank(rank: int, failure: BaseException) -> OSError:
    """An error of a rank, for all."""
    number = getattr(failure, "errno", None) or errno.EIO
    said = getattr(failure, "strerror", None) or str(failure).partition("\n")[0]
    return OSError(number, f"on rank {rank}: {said}")


def _on_all_ranks(work: Callable[[], _T]) -> list[_T]:
    """Return the results of all ranks in order; an OSError of any is raised on all."""
    own: tuple[_T | None, OSError | None]
    try:
        own = work(), None
    except OSError as error:
        own = None, error
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    for rank, (_, failed) in enumerate(found):
        if failed is not None:
            raise _on_rank(rank, failed)
    return [result for result, _ in found]
