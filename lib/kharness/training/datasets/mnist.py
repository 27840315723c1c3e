"""MNIST: 60,000 training and 10,000 test images of handwritten digits.

Y. LeCun, C. Cortes, C. J. C. Burges; see lenet5/mnist-subset/README.md for provenance and license.
"""

from __future__ import annotations

from kharness.training.datasets._digits import Digits, mnist_files
from kharness.training.datasets._files import DataFolder, Dataset

CITED = ("lecun1998",)

MNIST = Dataset(
    name="mnist",
    files=mnist_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        train=60_000,
        test=10_000,
    ),
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
)

DIGITS = Digits(MNIST, hint="make data fetches it; DATASET=mnist-subset needs no download")

Options = DataFolder
fetch, check, load, count = DIGITS.fetch, DIGITS.check, DIGITS.load, DIGITS.count
