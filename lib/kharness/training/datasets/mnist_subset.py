"""The class-balanced part of MNIST shipped in lenet5/mnist-subset; scripts/mnist_subset.py made it."""

from __future__ import annotations

from dataclasses import dataclass

from kharness.training.datasets._digits import Digits, mnist_files
from kharness.training.datasets._files import Dataset

CITED = ("lecun1998",)

FOLDER = "lenet5/mnist-subset"

# Chooses the images; the year of the paper, and of no other meaning.
SUBSET_SEED = 1998
SUBSET_TRAIN_PER_CLASS = 600
SUBSET_TEST_PER_CLASS = 100

MNIST_SUBSET = Digits(
    Dataset(
        name="mnist-subset",
        files=mnist_files(
            "3b9888723f9fcf2c3e6edb8a7f6e554928701b834e0745d913692dfea39cff0c",
            "7a8834244e3dac3a68a0ec80993f63e34845348f010ac6cfa99e9b20e351bdb2",
            "1c611c12adc0b0f14ff3a996f6fdd9379c48fc7f36f3a608243816f41f122f9c",
            "50eda3bfc5028d3d65ae0b89b08436b6fe97b48513983aa6e9989f874bfb42e4",
            train=6_000,
            test=1_000,
        ),
    ),
    hint=f"git checkout -- {FOLDER} brings it back",
    shipped=FOLDER,
)


@dataclass(frozen=True)
class Options:
    """Nothing to choose."""


fetch, check, load, count = MNIST_SUBSET.fetch, MNIST_SUBSET.check, MNIST_SUBSET.load, MNIST_SUBSET.count
