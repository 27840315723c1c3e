"""MNIST as tensors: splits that no seed changes, shifts that move pixels and nothing else."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kharness.config.assignment import Origin
from kharness.config.options import Options
from kharness.config.tree import Tree
from kharness.training.data import Batches, LabeledImages
from kharness.training.distributed.world import World
from kharness.training.errors import DatasetError
from lenet5.data import ShiftedImages, load_splits

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tree(root: Path) -> Tree:
    return Tree.load(root)


def options(tree: Tree, **changes: str) -> Options:
    given = {
        "DATASET": "mnist-subset",
        "DATA_DIR": "data",
        "LENET5_SHIFT": "0",
        "LENET5_VALIDATION_FRACTION": "0.1",
        **changes,
    }
    layers = [tree.assignments(*one, Origin("flag", one[0])) for one in given.items()]
    return Options(tree.resolve(*layers), tree=tree)


def test_splits_of_the_subset(root: Path, tree: Tree) -> None:
    splits = load_splits(options(tree), root=root, device=CPU)
    assert splits.sizes == {"train": 5400, "validation": 600, "test": 1000}
    assert splits.sha256 == "06b18432b1a5514a8658edc95b77a3a2b41f6f8d168e4cfefcb990d5b06ba969"
    labels = gzip.decompress((root / "lenet5/mnist-subset/train-labels-idx1-ubyte.gz").read_bytes())[8:]
    assert splits.validation.labels.tolist() == list(labels[::10])
    assert splits.train.labels.tolist() == [label for i, label in enumerate(labels) if i % 10]


def test_pixels_are_normalized(root: Path, tree: Tree) -> None:
    splits = load_splits(options(tree), root=root, device=CPU)
    pixels = gzip.decompress((root / "lenet5/mnist-subset/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    first = torch.tensor(list(pixels[: 28 * 28]), dtype=torch.float64).reshape(1, 28, 28)
    torch.testing.assert_close(
        splits.test.images[0], ((first / 255 - 0.1307) / 0.3081).float(), rtol=1e-5, atol=1e-5
    )
    assert splits.train.images.shape == (5400, 1, 28, 28)
    # the constants are the full set's, so the subset's mean and deviation are only near 0 and 1
    assert splits.train.images.mean().item() == pytest.approx(0, abs=0.02)
    assert splits.train.images.std().item() == pytest.approx(1, abs=0.02)


def test_shift_moves_an_image_and_fills_with_background() -> None:
    images = torch.full((1, 1, 28, 28), -0.5)
    images[0, 0, 10, 20] = 3.0
    shifted = ShiftedImages.of(LabeledImages(images, torch.tensor([7])), 2)
    torch.manual_seed(0)
    seen = set()
    for _ in range(400):
        batch, labels = shifted.batch(torch.tensor([0]))
        assert (batch.shape, labels.tolist()) == ((1, 1, 28, 28), [7])
        assert batch.sum().item() == images.sum().item()
        (position,) = (batch[0, 0] == 3.0).nonzero().tolist()
        seen.add(tuple(position))
    assert seen == {(10 + down, 20 + across) for down in range(-2, 3) for across in range(-2, 3)}


def test_each_image_of_a_batch_has_its_own_shift() -> None:
    images = torch.zeros(64, 1, 28, 28)
    images[:, 0, 14, 14] = 1.0
    shifted = ShiftedImages.of(LabeledImages(images, torch.arange(64)), 1)
    batch, labels = shifted.batch(torch.arange(64).flip(0))
    assert labels.tolist() == list(range(63, -1, -1))
    assert len({tuple(index) for index in (batch[:, 0] == 1).nonzero()[:, 1:].tolist()}) == 9


def test_full_set_that_was_not_fetched_is_refused(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_splits(options(tree, DATASET="mnist"), root=tmp_path, device=CPU)
    assert str(caught.value) == f"{tmp_path}/data/mnist/train-images-idx3-ubyte.gz does not exist"
    assert caught.value.hint == "make data fetches it; DATASET=mnist-subset needs no download"


def test_full_set_elsewhere_is_verified(root: Path, tree: Tree, tmp_path: Path) -> None:
    shutil.copytree(root / "lenet5" / "mnist-subset", tmp_path / "mnist")  # whole files, but other ones
    with pytest.raises(DatasetError, match=r"mnist/train-images-idx3-ubyte\.gz is damaged"):
        load_splits(options(tree, DATASET="mnist", DATA_DIR=str(tmp_path)), root=root, device=CPU)


def test_processes_that_share_batches_shift_as_one_would() -> None:
    """Each has a generator of its own, at another place; the last batch of an epoch is smaller."""
    images = torch.randn(11, 1, 28, 28, generator=torch.Generator().manual_seed(1))

    class Told(World):
        """Ranks that have heard of the first one's generator."""

        def of_main(self, value: Any) -> Any:
            return torch.Generator().manual_seed(0).get_state()

    def seen(world: World, state: Mapping[str, Any] | None = None) -> tuple[list[Tensor], list[Any]]:
        """Two epochs, or what a state leaves of them; the states after each batch. The model draws, too."""
        batches = Batches(11, 7, seed=1, device=CPU, world=world)
        torch.manual_seed(world.rank)
        shifted = ShiftedImages.of(LabeledImages(images, torch.arange(11)), 2)
        shifted.draws.follow(batches)
        if state:
            batches.load_state_dict(state)
        found, states = [], []
        while batches.epoch < 2:
            for batch in batches.rest_of_epoch():
                found.append(shifted.batch(world.own_part(batch))[0])
                torch.rand(world.rank + 1 if world.size > 1 else 0)
                states.append(batches.state_dict())
        return found, states

    def together(*state: Mapping[str, Any]) -> list[Tensor]:
        parts = [seen(Told(rank, 3), *state)[0] for rank in range(3)]
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    alone, _ = seen(World())
    _, states = seen(Told(0, 3))
    whole = together()
    assert len(alone) == 4
    assert all(torch.equal(*pair) for pair in zip(whole, alone, strict=True))
    for resumed in (together(states[0]), seen(World(), states[0])[0]):
        assert all(torch.equal(*pair) for pair in zip(resumed, alone[1:], strict=True))
