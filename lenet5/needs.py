"""What a training of LeNet-5 needs before it can begin: the device and the data that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.config.places import asked_path
from kharness.training.datasets.mnist import MNIST
from kharness.training.needs import answer, check_device, check_files

ROOT = Path(__file__).resolve().parent.parent


def check_data(values: Mapping[str, Any]) -> None:
    """DatasetError where DATASET=mnist has not been fetched."""
    if values["DATASET"] == "mnist":
        folder = ROOT / asked_path("DATA_DIR", values["DATA_DIR"]) / "mnist"
        check_files(MNIST, folder, hint="make data fetches it; DATASET=mnist-subset needs no download")


if __name__ == "__main__":
    answer([check_device, check_data])
