"""Requirements of a ResNet-50 training, checked before it begins: the common ones and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.training.datasets import check_dataset, pictures_of
from kharness.training.due import check_plan
from kharness.training.needs import COMMON, answer, held_out

ROOT = Path(__file__).resolve().parent.parent


def check_data(values: Mapping[str, Any]) -> None:
    """TrainingError where DATASET has not been fetched, or is too small for the plan."""
    name = values["DATASET"]
    check_dataset(name, values, ROOT)
    if (pictures := pictures_of(name, values, ROOT)) is not None:
        check_plan(values, samples=pictures - held_out(pictures, values["RESNET50_VALIDATION_FRACTION"]))


if __name__ == "__main__":
    answer([*COMMON, check_data])
