"""Gradients and optimizers that a training script brings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kharness.training.errors import TrainingError
from kharness.training.optimizers._own import check_gradients_alone, laid_out


def test_processes_average_gradients_of_one_loss_over_the_whole_batch_alone() -> None:
    check_gradients_alone([torch.ones(1)], is_part=False)
    with pytest.raises(TrainingError, match=r"^gradients of one loss alone are of the whole batch") as error:
        check_gradients_alone([torch.ones(1)], is_part=True)
    assert error.value.hint == "take it by training.batch(…, indices), outside of training.micro_batches"


def test_gradient_has_the_memory_order_of_its_weight() -> None:
    weight = nn.Parameter(torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last))
    gradient = torch.arange(96.0).view(2, 3, 4, 4)
    found = laid_out(gradient, weight)
    assert found.stride() == weight.stride() != gradient.stride()
    assert torch.equal(found, gradient)
    assert laid_out(found, weight) is found
