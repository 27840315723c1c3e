"""CIFAR-100: 50,000 training and 10,000 test pictures of 100 classes, 32x32 in colour."""

from __future__ import annotations

from kharness.training.datasets._files import DataFolder
from kharness.training.datasets._pictures.cifar import Cifar

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
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

# You unpack the official archive; `make data` looks whether it is intact.
ON_REQUEST = True

Options = DataFolder
fetch, check, load = CIFAR100.fetch, CIFAR100.check, CIFAR100.load
