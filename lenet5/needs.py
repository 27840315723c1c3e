"""What a training of LeNet-5 needs before it can begin: what every training does, and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.training.datasets import check_dataset
from kharness.training.needs import COMMON, answer

ROOT = Path(__file__).resolve().parent.parent


def check_data(values: Mapping[str, Any]) -> None:
    """DatasetError where DATASET has not been fetched."""
    check_dataset(values["DATASET"], values, ROOT)


if __name__ == "__main__":
    answer([*COMMON, check_data])
