"""Batches of indices: every sample once an epoch, in an order that seed and epoch alone decide."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

from kharness.training.data import Batches, LabeledImages, entropy, evenly_spaced
from kharness.training.errors import DatasetError

CPU = torch.device("cpu")


def take(batches: Batches, count: int) -> list[list[int]]:
    taken: list[list[int]] = []
    while len(taken) < count:
        for indices in batches.rest_of_epoch():
            taken.append(indices.tolist())
            if len(taken) == count:
                break
    return taken


def test_entropy_is_that_of_the_frequencies() -> None:
    drawn = torch.tensor([0, 0, 0, 2, 2, 5])
    assert entropy(drawn) == pytest.approx(scipy.stats.entropy([3, 2, 1]))
    assert entropy(torch.arange(10)) == pytest.approx(2.302585)


def test_an_epoch_has_every_sample_once_and_a_smaller_last_batch() -> None:
    batches = Batches(10, 4, seed=1, device=CPU)
    taken = take(batches, 3)
    assert [len(indices) for indices in taken] == [4, 4, 2]
    assert sorted(index for indices in taken for index in indices) == list(range(10))
    assert (batches.steps_per_epoch, batches.epoch, batches.position) == (3, 1, 0)


def test_batches_are_announced_while_the_one_before_is_taken() -> None:
    batches = Batches(10, 4, seed=1, device=CPU)
    announced: list[list[int]] = []
    batches.upcoming = lambda indices: announced.append(indices.tolist())
    for number, indices in enumerate(list(batches.rest_of_epoch())):
        assert number == 0 or announced[number - 1] == indices.tolist()
    assert len(announced) == 2


def test_order_follows_seed_and_epoch() -> None:
    first, same, other = (Batches(100, 10, seed=seed, device=CPU) for seed in (1, 1, 2))
    assert first.order(0).tolist() == same.order(0).tolist()
    assert first.order(0).tolist() != first.order(1).tolist()
    assert first.order(0).tolist() != other.order(0).tolist()


def test_order_does_not_depend_on_other_random_numbers() -> None:
    batches = Batches(100, 10, seed=1, device=CPU)
    first = batches.order(3).tolist()
    torch.rand(5)
    assert batches.order(3).tolist() == first


@pytest.mark.parametrize("stop", range(1, 9))
def test_state_goes_on_with_the_next_batch(stop: int) -> None:
    uninterrupted = take(Batches(10, 4, seed=5, device=CPU), 9)
    stopped, resumed = (Batches(10, 4, seed=5, device=CPU) for _ in range(2))
    before = take(stopped, stop)
    resumed.load_state_dict(stopped.state_dict())
    assert before + take(resumed, 9 - stop) == uninterrupted


def test_batch_larger_than_the_set_is_refused() -> None:
    with pytest.raises(DatasetError) as caught:
        Batches(10, 11, seed=1, device=CPU)
    assert str(caught.value) == "BATCH_SIZE=11 is larger than the training set of 10 samples"
    assert caught.value.hint == "choose BATCH_SIZE of at most 10"


def test_evenly_spaced_holds_out_every_tenth() -> None:
    assert evenly_spaced(30, 0.1).tolist() == [0, 10, 20]
    assert evenly_spaced(7, 0.5).tolist() == [0, 1, 3, 5]
    assert evenly_spaced(3, 0.001).tolist() == [0]


def test_labeled_images_gather_and_chunk() -> None:
    images = LabeledImages(torch.arange(5).reshape(5, 1, 1, 1), torch.arange(5) * 10)
    pixels, labels = images.batch(torch.tensor([3, 0]))
    assert (pixels.flatten().tolist(), labels.tolist()) == ([3, 0], [30, 0])
    assert [labels.tolist() for _, labels in images.chunks(2)] == [[0, 10], [20, 30], [40]]
