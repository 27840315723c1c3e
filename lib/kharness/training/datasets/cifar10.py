"""CIFAR-10: 50,000 training and 10,000 test pictures of 10 classes, 32x32 in color."""

from __future__ import annotations

from kharness.training.datasets._cifar import Cifar, official
from kharness.training.datasets._files import DataFolder

CITED = ("krizhevsky2009",)

CIFAR10 = Cifar(
    name="CIFAR-10",
    folder="cifar10",
    python_folder="cifar-10-batches-py",
    python_files=(tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)),
    label_key=b"labels",
    names_file="batches.meta",
    names_key=b"label_names",
    binary_folder="cifar-10-batches-bin",
    binary_files=(tuple(f"data_batch_{number}.bin" for number in range(1, 6)), ("test_batch.bin",)),
    binary_names="batches.meta.txt",
    label_bytes=1,
    num_classes=10,
    archive=official(
        "cifar10",
        "cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        size=170_498_071,
    ),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

# `make data` fetches 170 MB only where it is the DATASET.
ON_REQUEST = True

Options = DataFolder
fetch, check, load, count = CIFAR10.fetch, CIFAR10.check, CIFAR10.load, CIFAR10.count
