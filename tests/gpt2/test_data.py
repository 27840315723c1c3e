"""GPT-2's blocks: which tokens each has, how processes share them, and what is too short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpt2.data import Blocks, load_splits
from kharness.training.data import Batches
from kharness.training.errors import DatasetError
from kharness.training.tokens.streams import TokenStream

CPU = torch.device("cpu")
TOKENS = np.arange(65_000, 65_000 + 500).astype(np.uint16)


@pytest.fixture(params=[[TOKENS], [TOKENS[:100], TOKENS[100:333], TOKENS[333:]]], ids=["one", "shards"])
def blocks(request: pytest.FixtureRequest) -> Blocks:
    return Blocks(TokenStream(request.param), 7, CPU)


def test_every_token_but_the_last_ones_is_in_one_block(blocks: Blocks) -> None:
    inputs, targets = blocks.batch(torch.arange(len(blocks)))
    expected = torch.from_numpy(TOKENS.astype(np.int64))
    assert len(blocks) == 71  # 499 of 500 tokens have one after them
    assert torch.equal(inputs.flatten(), expected[: 71 * 7])
    assert torch.equal(targets.flatten(), expected[1 : 71 * 7 + 1])
    assert (inputs.dtype, targets.dtype, inputs.shape) == (torch.int64, torch.int64, (71, 7))


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_a_batch_without_overlap_or_loss(blocks: Blocks, processes: int) -> None:
    """Whatever the number of processes, their parts of a batch together hold exactly its blocks."""
    indices = next(iter(Batches(len(blocks), 12, seed=1, device=CPU)))
    parts = [blocks.batch(indices[rank::processes])[0] for rank in range(processes)]
    found = torch.cat(parts)[:, 0].sort().values
    assert torch.equal(found, blocks.batch(indices)[0][:, 0].sort().values)


def test_batches_of_a_seed_are_the_same_text(blocks: Blocks) -> None:
    def first(seed: int) -> torch.Tensor:
        return blocks.batch(next(iter(Batches(len(blocks), 12, seed=seed, device=CPU))))[0]

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def options(**values: Any) -> Any:
    values = {"DATASET": "pydoc-topics", "GPT2_BLOCK_SIZE": 64, **values}
    return SimpleNamespace(values=values, **values)


def test_batches_are_read_ahead_by_the_cpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = load_splits(options(), root=root, device=CPU)
    batches = Batches(len(splits.train), 100, seed=1, device=torch.device("meta"))
    assert splits.begin(batches) == {}
    assert next(iter(batches)).device == CPU
    assert batches.upcoming == splits.train.read_ahead


@pytest.mark.gpu
def test_a_batch_reaches_a_gpu_without_waiting_for_it(blocks: Blocks) -> None:
    indices = torch.arange(5)
    expected, on_gpu = blocks.batch(indices), replace(blocks, device=torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = on_gpu.batch(indices)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


def test_no_text_is_in_both_splits(root: Path) -> None:
    splits = load_splits(options(), root=root, device=CPU)
    train, validation = len(splits.train.tokens), len(splits.validation.tokens)
    assert splits.sizes == {"train": (train - 1) // 64, "validation": (validation - 1) // 64}
    assert splits.vocabulary == 256
    from pydoc_data.topics import topics

    content = "\n".join(f"{name}\n\n{topics[name]}" for name in sorted(topics)).encode()
    last_trained, _ = splits.train.batch(torch.tensor([len(splits.train) - 1]))
    first_held_out, _ = splits.validation.batch(torch.tensor([0]))
    start = (len(splits.train) - 1) * 64
    assert bytes(last_trained[0].tolist()) == content[start : start + 64]
    assert bytes(first_held_out[0].tolist()) == content[train : train + 64]
    assert train + validation == len(content)


def test_blocks_longer_than_the_text_are_refused(root: Path) -> None:
    with pytest.raises(
        DatasetError, match="GPT2_BLOCK_SIZE=1000000 is longer than the training text"
    ) as caught:
        load_splits(options(GPT2_BLOCK_SIZE=1_000_000), root=root, device=CPU)
    assert caught.value.hint == "choose shorter blocks"


def test_tiny_shakespeare_has_1742_blocks_to_validate_on(root: Path) -> None:
    if not (root / "data/tokens/shakespeare_char-chars").exists():
        pytest.skip("Tiny Shakespeare is not there (make data CONFIG_MODEL_GPT2=y)")
    values = {"DATASET": "shakespeare_char", "DATA_DIR": "data"}
    splits = load_splits(options(**values), root=root, device=CPU)
    assert splits.sizes == {"train": 15_685, "validation": 1_742}
