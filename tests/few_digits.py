"""A checkout whose LeNet-5 can also train on a hundred digits: the same steps in a fiftieth of the time.

It is a copy of the one under test with one more dataset, added as docs/extending.md says.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kharness.config.places import OUTPUT
from kharness.training.datasets._digits import idx_bytes, subset
from kharness.training.datasets.mnist_subset import Options, load

MODULE = Path(__file__).with_name("data") / "few_digits" / "few_digits.py"
ARRAYS = ("train-images", "train-labels", "test-images", "test-labels")
END_OF_CHOICE = "endchoice\n\nconfig DATASET\n\tstring\n"
ENTRY = 'config DATASET_FEW_DIGITS\n\tbool "A hundred digits (120 + 20 images)"\n\n'
DEFAULT = '\tdefault "few-digits" if DATASET_FEW_DIGITS\n'


def copy(checkout: Path, folder: Path) -> Path:
    """A copy of it that may be written to."""
    ignored = shutil.ignore_patterns("*.pyc.*")  # what another process just compiles
    return Path(shutil.copytree(checkout, folder, ignore=ignored))


def make(root: Path, folder: Path) -> None:
    """Copy the checkout `root` to `folder`, compiled modules included, and add the dataset."""
    models = [path.parent.name for path in root.glob("*/model.py")]
    ignored = shutil.ignore_patterns("mnist-subset", "*.pyc.*")  # also what another process just compiles
    for name in ("lib", "scripts", "defconfigs", *models):
        shutil.copytree(root / name, folder / name, ignore=ignored)
    for name in ("Kconfig", ".gitignore"):
        shutil.copy(root / name, folder / name)
    shutil.copy(MODULE, folder / "lib/kharness/training/datasets")
    kconfig = folder / "lenet5/Kconfig"
    text = kconfig.read_text()
    assert END_OF_CHOICE in text
    kconfig.write_text(text.replace(END_OF_CHOICE, ENTRY + END_OF_CHOICE + DEFAULT))
    digits = subset(load(Options(), root), train_per_class=12, test_per_class=2, seed=1)
    arrays = (digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
    (folder / "lenet5/few-digits").mkdir()
    for name, array in zip(ARRAYS, arrays, strict=True):
        (folder / "lenet5/few-digits" / name).write_bytes(idx_bytes(array))


def environment_of(checkout: Path) -> dict[str, str]:
    """Environment of a process that takes its modules, and its `.config`, from a checkout."""
    return {**os.environ, "PYTHONPATH": str(checkout / "lib"), OUTPUT: ""}
