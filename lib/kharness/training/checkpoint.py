"""Checkpoints: everything a training needs to resume, in files that are complete or absent.

A file is written under a temporary name, synced, and renamed to a name that holds the first 16 hex digits of
its SHA-256, so one rename makes it both complete and verifiable: `attempt01-step00000425-1f0c….pt`. The
attempt comes first, so that the newest is known by the name. `torch.load` reads it as it is.

State of which each rank has a part is a directory of the same name that ends in `.dcp`
(kharness.training.saving.shards).
"""

from __future__ import annotations

import math
import os
import pickle
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from kharness.runs.exit_codes import DISK_FULL, ERROR
from kharness.training.errors import CheckpointError, CheckpointWriteError, first_line
from kharness.training.saving.hashed import OTHER, check_sha256, save_hashed
from kharness.training.saving.sharded import full, is_sharded
from kharness.training.saving.shards import (
    is_shared,
    keep_also_as,
    link,
    read_shards,
    remove_shards,
    with_values,
    write_shards,
)
from monitoring.errors import is_full, refusal
from monitoring.journal.atomic_file import name_beside, sync_folder

# Counts up when a reader of older files must know the difference.
FORMAT = 1

# Entries of a checkpoint besides its parts and what a training says about them.
_OWN_ENTRIES = ("format", "global_step", "best", "is_best", "parts", "folder", "sha256")

_NAME = re.compile(r"(?P<best>best-)?attempt(\d{2,})-step(\d{8,})-(?P<sha256>[0-9a-f]{16})\.(pt|dcp)")


@dataclass(frozen=True)
class Best:
    """The lowest validation loss so far, and the step it was measured after."""

    val_loss: float
    global_step: int


class Stateful(Protocol):
    """A part of a training that a checkpoint keeps: torch's own protocol, that of its modules."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state, in types that `torch.load(weights_only=True)` takes."""

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Continue from the state; ValueError or RuntimeError if it is of another training."""


def training_state(parts: Mapping[str, Stateful], **about: object) -> dict[str, Any]:
    """The state of every part under its name, and next to them what `about` says.

    ValueError for a part with a name that is taken.
    """
    taken = parts.keys() & {*about, *_OWN_ENTRIES}
    if taken:
        raise ValueError(
            f"no part can be named {', '.join(sorted(taken))}: a checkpoint has an entry of that name"
        )
    return {"parts": list(parts), **about, **{name: part.state_dict() for name, part in parts.items()}}


def restore(state: Mapping[str, Any], parts: Mapping[str, Stateful]) -> None:
    """Put every part where it was; CheckpointError if the state is of another training."""
    try:
        if set(state.get("parts", ())) != parts.keys():
            raise ValueError(f"its parts are not {', '.join(parts)}")
        state = _laid_out(state, parts)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint does not fit this training: {first_line(error).rstrip(':')}",
            hint="continue with the model and the optimizer that it was made with",
        ) from error


def restore_model(state: Mapping[str, Any], model: torch.nn.Module) -> None:
    """Have the model's weights of a checkpoint in a model; CheckpointError if they are another's."""
    restore({**state, "parts": ["model"]}, {"model": model})


def _laid_out(state: Mapping[str, Any], parts: Mapping[str, Stateful]) -> Mapping[str, Any]:
    """Sharded as the model is here, whatever it was when the state was saved; the same where it never is."""
    model, optimizer = parts.get("model"), parts.get("optimizer")
    weights: Mapping[str, Tensor] = model.state_dict() if model is not None else {}
    if "folder" not in state and not any(map(is_sharded, weights.values())):
        return state
    groups = optimizer.param_groups if isinstance(optimizer, torch.optim.Optimizer) else []
    trained = [parameter for group in groups for parameter in group["params"]]

    def layout(path: tuple[Any, ...]) -> Tensor | None:
        """An optimizer numbers the weights group by group; what it keeps of one has its shape."""
        if path[:2] == ("optimizer", "state"):
            return trained[path[2]] if path[2] < len(trained) else None
        return weights.get(path[1]) if path[0] in ("model", "trained_weights") else None

    return with_values({name: state[name] for name in (*parts, "folder") if name in state}, layout)


class Checkpoints:
    """The checkpoints of one run: of its lineage the newest `keep`, and the best by validation loss."""

    def __init__(
        self, directory: Path, *, attempt: int, keep: int = 2, first_attempt: int = 1, writes: bool = True
    ) -> None:
        """Never delete what attempts before `first_attempt` left, before a start from scratch.

        Ranks above 0 keep the books without `writes`: they know what rank 0 saves, and save nothing.
        """
        self.directory = directory
        self.attempt = attempt
        self.keep = keep
        self.first_attempt = first_attempt
        self.writes = writes
        self.best: Best | None = None
        """Best of all validation losses passed to `improves`."""
        self.last_step: int | None = None
        """The step of the newest checkpoint: the last one written, or the one that was resumed from."""

    def go_on_from(self, path: Path, state: Mapping[str, Any]) -> None:
        """Continue from a loaded checkpoint: what was best so far is in it.

        A process killed in the middle of `save` may have written the file without keeping it as the best.
        CheckpointWriteError if that cannot be made up for.
        """
        self.best = Best(**state["best"]) if state["best"] else None
        self.last_step = int(state["global_step"])
        kept = [own_name(best) for best in checkpoint_files(self.directory, best=True)]
        if self.writes and state.get("is_best") and own_name(path) not in kept:
            with self._writing(self.last_step):
                _keep_as_best(path)
                sync_folder(self.directory)

    def improves(self, val_loss: float, *, step: int) -> bool:
        """Whether this is the lowest validation loss so far, compared before it is remembered."""
        improved = math.isfinite(val_loss) and (self.best is None or val_loss < self.best.val_loss)
        if improved:
            self.best = Best(val_loss, step)
        return improved

    def save(self, step: int, state: Mapping[str, Any], *, best: bool = False) -> Path:
        """Write the state after a step, durable on return, then delete what is no longer kept.

        `best` also keeps it as the best so far. CheckpointWriteError when it cannot be written. Of a state
        that ranks share, all of them call this.
        """
        about = {"best": asdict(self.best) if self.best else None, "is_best": best}
        content = {"format": FORMAT, "global_step": step, **about, **state}
        with self._writing(step):
            self.directory.mkdir(parents=True, exist_ok=True)
            write = write_shards if is_shared(state) else _write
            path = write(self.directory, f"attempt{self.attempt:02d}-step{step:08d}", content)
            if self.writes:
                if best:
                    _keep_as_best(path)
                # The rename is durable only once its directory is on disk, and old files are deleted only
                # after that: a power cut never leaves fewer than the checkpoints that were intact before.
                sync_folder(self.directory)
                self._delete_old()
        self.last_step = step
        return path

    def save_weights(self, path: Path, model: torch.nn.Module) -> None:
        """Write the weights that ranks share in one file, as `model` of a checkpoint that is one.

        All ranks call it; one tensor after the other is gathered. CheckpointWriteError when it cannot be
        written.
        """
        assert self.last_step is not None
        weights = {}
        for name, tensor in model.state_dict().items():
            gathered = full(tensor)
            if self.writes:
                weights[name] = gathered.cpu()
        if self.writes:
            with self._writing(self.last_step):
                temporary = name_beside(path)
                try:
                    save_hashed(temporary, {"global_step": self.last_step, "model": weights})
                    os.replace(temporary, path)
                finally:
                    temporary.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointWriteError(
                f"{self.directory}: the checkpoint of step {step} cannot be written: {refusal(error)}",
                hint="free some space; the checkpoints before it are intact",
                cause=DISK_FULL if is_full(error) else ERROR,
            ) from error

    def _delete_old(self) -> None:
        steps, bests = (checkpoint_files(self.directory, best=best) for best in (False, True))
        for path in (*steps[self.keep :], *bests[1:]):
            if position(path)[0] >= self.first_attempt:
                remove_shards(path) if path.is_dir() else path.unlink(missing_ok=True)
        for path in self.directory.glob(".*.tmp"):  # left by a process that was killed while it wrote
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def checkpoint_files(directory: Path, *, best: bool = False) -> list[Path]:
    """The checkpoints, or those kept as the best, newest first: by attempt, then by step."""
    named = [(path, _NAME.fullmatch(path.name)) for path in directory.glob("*attempt*")]
    found = [path for path, name in named if name and bool(name["best"]) == best]
    return sorted(found, key=lambda path: (position(path), path.name), reverse=True)


def position(path: Path) -> tuple[int, int]:
    """The attempt and the step of a checkpoint, by its name."""
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise CheckpointError(
            f"{path} is not named like a checkpoint",
            hint="the name holds the hash; give it its own name back",
        )
    return int(name[2]), int(name[3])


def own_name(path: Path) -> str:
    """Return the name under which a checkpoint was first written, also if it is kept as the best."""
    return path.name.removeprefix("best-")


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, on the CPU; CheckpointError unless its SHA-256 is the one in its name."""
    position(path)
    try:
        state = read_shards(path) if path.is_dir() else _read(path)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", hint=OTHER) from error
    if state["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this is for {FORMAT}",
            hint="use the revision that wrote it",
        )
    return state


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        check_sha256(file, path.stem.rpartition("-")[2])
        file.seek(0)
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def _write(directory: Path, stem: str, state: Mapping[str, Any]) -> Path:
    temporary = name_beside(directory / stem)
    try:
        path = directory / f"{stem}-{save_hashed(temporary, state)[:16]}.pt"
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _keep_as_best(path: Path) -> None:
    """A second name for the same file; a copy where the file system has no hard links."""
    best = path.with_name(f"best-{path.name}")
    if path.is_dir():
        keep_also_as(path, best)
        return
    temporary = name_beside(best)
    # by a detour, for a link cannot take the place of a file: a crash leaves the best one of before, or this
    # one
    link(path, temporary)
    os.replace(temporary, best)
