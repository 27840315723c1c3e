"""Make lenet5/mnist-subset again from the full set: python scripts/mnist_subset.py FULL_FOLDER [FOLDER]."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

from kharness.config.errors import KharnessError, run_command
from kharness.training.datasets._digits import idx_bytes, subset
from kharness.training.datasets.mnist import DIGITS, MNIST
from kharness.training.datasets.mnist_subset import (
    SUBSET_SEED,
    SUBSET_TEST_PER_CLASS,
    SUBSET_TRAIN_PER_CLASS,
)

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Write the four files and print name, size and SHA-256 of their uncompressed content."""
    if len(argv) not in (1, 2):
        raise KharnessError("one folder with the full MNIST files is needed", hint="make data fetches them")
    out = Path(argv[1]) if argv[1:] else ROOT / "lenet5" / "mnist-subset"
    part = subset(
        DIGITS.read(Path(argv[0])),
        train_per_class=SUBSET_TRAIN_PER_CLASS,
        test_per_class=SUBSET_TEST_PER_CLASS,
        seed=SUBSET_SEED,
    )
    out.mkdir(parents=True, exist_ok=True)
    parts = (part.train_images, part.train_labels, part.test_images, part.test_labels)
    for file, array in zip(MNIST.files, parts, strict=True):
        content = idx_bytes(array)
        # without a time stamp, so that the same zlib gives the same bytes
        (out / f"{file.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        print(f"{hashlib.sha256(content).hexdigest()}  {file.name} ({len(content):,} bytes)")
    return 0


if __name__ == "__main__":
    run_command(main)
