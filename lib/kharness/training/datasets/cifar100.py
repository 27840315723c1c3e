"""CIFAR-100: 50,000 training and 10,000 test pictures of 100 classes, 32x32 in color."""

from __future__ import annotations

from kharness.training.datasets._cifar import Cifar, official
from kharness.training.datasets._files import DataFolder

CITED = ("krizhevsky2009",)

CIFAR100 = Cifar(
    name="CIFAR-100",
    folder="cifar100",
    python_folder="cifar-100-python",
    python_files=(("train",), ("test",)),
    label_key=b"fine_labels",
    names_file="meta",
    names_key=b"fine_label_names",
    binary_folder="cifar-100-binary",
    binary_files=(("train.bin",), ("test.bin",)),
    binary_names="fine_label_names.txt",
    label_bytes=2,
    num_classes=100,
    archive=official(
        "cifar100",
        "cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        size=169_001_437,
    ),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

# `make data` fetches 170 MB only where it is the DATASET.
ON_REQUEST = True

Options = DataFolder
fetch, check, load, count = CIFAR100.fetch, CIFAR100.check, CIFAR100.load, CIFAR100.count
