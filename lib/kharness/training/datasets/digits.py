"""The digits shipped in lenet5/mnist-subset, by the name that models of pictures know them by."""

from __future__ import annotations

from kharness.training.datasets.mnist_subset import Options, check, count, fetch, load

__all__ = ["Options", "check", "count", "fetch", "load"]
