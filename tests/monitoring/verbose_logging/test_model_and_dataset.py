"""Models and datasets of any kind are described; describing changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from monitoring.verbose_logging.model_and_dataset import MOST_FIELDS, dataset_info, model_info


class Broken:
    """Whatever is called raises."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, index: int) -> object:
        raise RuntimeError("no sample")

    def parameters(self) -> Iterator[nn.Parameter]:
        raise RuntimeError("no parameters")


def test_model_is_counted_and_its_size_is_that_of_its_bytes() -> None:
    model = nn.Sequential(nn.Linear(4, 8, dtype=torch.float16), nn.BatchNorm1d(8))
    model[1].weight.requires_grad_(False)
    model.config = {"hidden_size": 8, "label_names": ["a"], "name": "x" * 500}  # type: ignore[assignment]
    assert model_info(model) == {
        "name": "Sequential",
        "total_parameters": 56,
        "trainable_parameters": 48,
        "trainable_percent": pytest.approx(100 * 48 / 56),
        "parameters_by_dtype": {"float16": 40, "float32": 16},
        "size_mb": pytest.approx(
            (40 * 2 + 16 * 4 + 2 * 8 * 4 + 8) / 1e6
        ),  # and running mean, variance, count
        "devices": ["cpu"],
        "config": {"hidden_size": 8, "name": "x" * 200},
    }


def test_shared_and_packed_parameters_are_counted_as_they_are() -> None:
    model = nn.Linear(4, 4, bias=False)
    model.again = model.weight
    assert model_info(model)["total_parameters"] == 16
    model.weight.quant_state = SimpleNamespace(shape=(8, 8))  # type: ignore[attr-defined]  # as bitsandbytes has it
    assert (model_info(model)["total_parameters"], model_info(model)["size_mb"]) == (64, 64 / 1e6)


def test_a_model_that_raises_is_named() -> None:
    assert model_info(Broken()) == {
        "name": "Broken",
        "problems": ["parameters: RuntimeError", "size: RuntimeError"],
    }


def test_dataset_has_structure_size_and_one_sample() -> None:
    sample = {
        "pixels": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "mask": np.array([True, False]),
        "ids": [1, 2, 3],
        "text": "four",
        "pair": (1, {"deep": None}),
    }
    assert dataset_info([sample, sample]) == {
        "type": "list",
        "size": 2,
        "sample": {
            "type": "dict",
            "fields": {
                "pixels": {
                    "type": "Tensor",
                    "shape": [2, 2],
                    "dtype": "float32",
                    "min": 1.0,
                    "max": 4.0,
                    "mean": 2.5,
                    "std": pytest.approx(1.25**0.5),
                },
                "mask": {
                    "type": "ndarray",
                    "shape": [2],
                    "dtype": "bool",
                    "min": 0.0,
                    "max": 1.0,
                    "mean": 0.5,
                    "std": 0.5,
                },
                "ids": {
                    "type": "list",
                    "length": 3,
                    "shape": [3],
                    "min": 1,
                    "max": 3,
                    "mean": 2.0,
                    "std": pytest.approx((2 / 3) ** 0.5),
                },
                "text": {"type": "str", "length": 4},
                "pair": {
                    "type": "tuple",
                    "length": 2,
                    "items": [
                        {"type": "int", "value": 1},
                        {"type": "dict", "fields": {"deep": {"type": "NoneType"}}},
                    ],
                },
            },
        },
    }


def test_datasets_with_columns_and_features_say_them() -> None:
    class Table(list[dict[str, int]]):
        """Stand-in for datasets.Dataset with the parts that are read; importing that takes eight seconds."""

        column_names = ("label",)
        features: ClassVar = {"label": "Value('int64')"}

    found: dict[str, Any] = dataset_info(Table([{"label": 0}, {"label": 1}]))
    assert found == {
        "type": "Table",
        "size": 2,
        "columns": ["label"],
        "features": {"label": "Value('int64')"},
        "sample": {"type": "dict", "fields": {"label": {"type": "int", "value": 0}}},
    }


def test_a_hostile_dataset_is_described_as_far_as_it_goes() -> None:
    assert dataset_info(Broken()) == {
        "type": "Broken",
        "problems": ["size: RuntimeError", "sample: RuntimeError"],
    }


def test_what_can_only_be_iterated_over_is_not_touched() -> None:
    stream = iter([1, 2, 3])
    assert dataset_info(stream) == {"type": "list_iterator", "size": None}
    assert list(stream) == [1, 2, 3]


def test_an_augmentation_draws_nothing_from_the_training() -> None:
    class Augmented(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return torch.rand(1) + random.random() + float(np.random.rand())

    def state() -> tuple[object, ...]:
        return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # type: ignore[index]

    before = state()
    assert dataset_info(Augmented([1]))["size"] == 1
    assert state() == before


def test_a_huge_sample_is_described_in_part() -> None:
    wide: Any = "x"
    for _ in range(6):
        wide = {str(number): wide for number in range(100)}
    found: Any = dataset_info([wide])
    assert len(found["sample"]["fields"]) == MOST_FIELDS
    assert len(str(found)) < 100_000
