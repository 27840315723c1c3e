"""The shipped part of MNIST: chosen by hashes, balanced, and what its README says."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kharness.training.datasets import load_dataset
from kharness.training.datasets._digits import balanced_choice, subset
from kharness.training.datasets._files import read_verified
from kharness.training.datasets._pictures import PictureSet
from kharness.training.datasets.mnist import MNIST
from kharness.training.datasets.mnist_subset import MNIST_SUBSET


def test_choice_takes_the_smallest_hashes_of_each_class() -> None:
    labels = [0, 1, 0, 1, 0]
    ranks = {i: hashlib.sha256(f"key {i}".encode()).hexdigest() for i in range(5)}
    zeros, ones = sorted([0, 2, 4], key=ranks.__getitem__), sorted([1, 3], key=ranks.__getitem__)
    assert balanced_choice(labels, per_class=1, key="key") == sorted([zeros[0], ones[0]])
    assert balanced_choice(labels, per_class=2, key="key") == sorted(zeros[:2] + ones)


def test_subset_keeps_images_with_their_labels() -> None:
    labels = np.array([0, 1, 0, 1], np.uint8)
    images = np.array([[[0, 10]], [[1, 11]], [[2, 12]], [[3, 13]]], np.uint8)  # each begins with its index
    full = PictureSet(images, labels, images, labels, ("a", "b"), (0.0,), (1.0,), "")
    part = subset(full, train_per_class=1, test_per_class=2, seed=7)
    chosen = part.train_images[:, 0, 0].tolist()
    assert part.train_images.tolist() == [[[i, i + 10]] for i in chosen]
    assert part.train_labels.tolist() == [labels[i] for i in chosen]
    assert sorted(part.train_labels.tolist()) == [0, 1]
    assert part.test_images.tolist() == images.tolist()


def test_shipped_subset_is_verified_and_balanced(root: Path) -> None:
    folder = root / "lenet5" / "mnist-subset"
    digits = load_dataset("mnist-subset", {}, root)
    arrays = [digits.train_images, digits.train_labels, digits.test_images, digits.test_labels]
    assert [array.shape for array in arrays] == [(6000, 28, 28), (6000,), (1000, 28, 28), (1000,)]
    assert Counter(arrays[1].tolist()) == dict.fromkeys(range(10), 600)
    assert Counter(arrays[3].tolist()) == dict.fromkeys(range(10), 100)
    shipped = sum(path.stat().st_size for path in folder.glob("*.gz"))
    assert shipped < 1_200_000


def test_readme_of_the_subset_lists_its_hashes(root: Path) -> None:
    text = (root / "lenet5" / "mnist-subset" / "README.md").read_text()
    assert [
        file.name for file in MNIST_SUBSET.dataset.files if f"{file.sha256}  {file.name}" not in text
    ] == []


def test_subset_can_be_made_again_from_the_full_set(root: Path, tmp_path: Path) -> None:
    folder = root / "data" / "mnist"
    if any(file.find(folder) is None for file in MNIST.files):
        pytest.skip("the full MNIST is not there (make data)")
    command: list[str | Path] = [sys.executable, root / "scripts" / "mnist_subset.py", folder, tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    made = [read_verified(tmp_path, file, hint="") for file in MNIST_SUBSET.dataset.files]
    shipped = [
        read_verified(root / "lenet5/mnist-subset", file, hint="") for file in MNIST_SUBSET.dataset.files
    ]
    assert made == shipped


def test_datasets_need_no_torch() -> None:
    """`make data` runs where torch is not yet, or never, installed."""
    code = (
        "import sys; from kharness.training.datasets import DATASETS; "
        "[DATASETS.load(name) for name in DATASETS.names]; "
        "print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_checks_before_a_matrix_import_no_numpy(root: Path) -> None:
    """It takes longer than all that they do."""
    code = (
        "import sys; from pathlib import Path; "
        "from kharness.training.datasets import check_dataset, pictures_of; "
        "given = 'mnist-subset', {}, Path(sys.argv[1]); "
        "check_dataset(*given); print(pictures_of(*given), 'numpy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code, root], text=True) == "6000 False\n"
