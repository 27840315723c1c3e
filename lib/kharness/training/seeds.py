"""One seed for everything random, and the states of the generators for a checkpoint."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def derived_seed(seed: int, *names: object) -> int:
    """A seed below 2**63 for one purpose, such as the order of one epoch, unrelated to its neighbours."""
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
    """All global generators of random numbers, as a part of a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        return rng_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_rng_state(state)
