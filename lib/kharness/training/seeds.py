"""One seed for everything random, and the states of the generators for a checkpoint."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_rank(seed: int, rank: int) -> None:
    """Seed a rank above 0, once the model is there, to draw other numbers than rank 0 from then on."""
    seed_everything(derived_seed(seed, "rank", rank) % 2**32)


def derived_seed(seed: int, *names: object) -> int:
    """A seed below 2**63 for one purpose, such as the order of one epoch, unrelated to its neighbors."""
    text = " ".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def rng_state() -> dict[str, Any]:
    """The states of all global generators, in types that `torch.load(weights_only=True)` takes."""
    version, internal, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    return {
        "python": [version, list(internal), gauss],
        "numpy": {
            "key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
        # Not is_available: a training on the CPU starts no CUDA, and so has no generator there.
        "cuda": torch.cuda.get_rng_state_all() if _uses_cuda() else [],
    }


def restore_rng_state(state: Mapping[str, Any]) -> None:
    """Put every generator where it was when `rng_state` was called.

    States of GPUs that are not here are ignored.
    """
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    saved = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": saved["key"].numpy().astype(np.uint32), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if _uses_cuda():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())


class Generators:
    """All global generators of random numbers, as a part of a checkpoint: those of every rank."""

    def __init__(
        self,
        seed: int = 0,
        *,
        rank: int = 0,
        collect: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None,
    ) -> None:
        """`collect` gives rank 0 the states of all ranks, where there are several."""
        self._seed, self._rank, self._collect = seed, rank, collect

    def state_dict(self) -> dict[str, Any]:
        """Return the generators of rank 0, with those of the ranks above it in `ranks`."""
        state = rng_state()
        if self._collect is None:
            return state
        return {**state, "ranks": self._collect(state)[1:]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where this rank was; a rank that was not there begins with a seed of its own."""
        of_ranks = [state, *state.get("ranks", ())]
        if self._rank < len(of_ranks):
            restore_rng_state(of_ranks[self._rank])
        else:
            seed_rank(self._seed, self._rank)
