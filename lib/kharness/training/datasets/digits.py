"""The digits shipped in lenet5/mnist-subset, by the name that other models know them by."""

from __future__ import annotations

from kharness.training.datasets import mnist_subset

Options = mnist_subset.Options
fetch, check, count = mnist_subset.fetch, mnist_subset.check, mnist_subset.count
load = mnist_subset.load
