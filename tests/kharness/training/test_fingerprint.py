"""The hash over a state: the same for the same bits, and for nothing else."""

from __future__ import annotations

import hashlib
import struct

import torch

from kharness.training.saving.hashed import state_sha256


def test_hash_is_what_its_description_says() -> None:
    state = {
        "weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "groups": [{"lr": 0.5}],
        "count": torch.tensor(7),
    }
    expected = hashlib.sha256(
        b"/count int64 \n" + struct.pack("=q", 7)
        + b"/groups/0/lr 0.5\n"
        + b"/weight float32 2x2\n" + struct.pack("=4f", 1, 2, 3, 4)
    )  # fmt: skip
    assert state_sha256(state) == expected.hexdigest()


def test_layout_and_order_of_keys_do_not_matter() -> None:
    images = torch.randn(2, 3, 4, 5)
    channels_last = images.to(memory_format=torch.channels_last)
    assert channels_last.stride() != images.stride()
    assert state_sha256({"a": images, "b": 1}) == state_sha256({"b": 1, "a": channels_last})


def test_one_bit_a_shape_and_a_type_matter() -> None:
    zeros = torch.zeros(4)
    others = [-zeros, zeros.reshape(2, 2), zeros.bool(), zeros.bfloat16(), torch.zeros(5)]
    hashes = {state_sha256({"w": tensor}) for tensor in (zeros, *others)}
    assert len(hashes) == 6
    assert state_sha256({"v": zeros}) not in hashes
