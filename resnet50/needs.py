"""Requirements of a ResNet-50 training, checked before it begins: the common ones and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.training.datasets import check_dataset, pictures_of
from kharness.training.due import check_plan
from kharness.training.errors import DatasetError
from kharness.training.needs import COMMON, answer, held_out

ROOT = Path(__file__).resolve().parent.parent


def check_data(values: Mapping[str, Any]) -> None:
    """TrainingError where DATASET has not been fetched, or is too small for the plan."""
    name = values["DATASET"]
    check_dataset(name, values, ROOT)
    if (pictures := pictures_of(name, values, ROOT)) is not None:
        samples = pictures - held_out(pictures, values["RESNET50_VALIDATION_FRACTION"])
        check_plan(values, samples=samples)
        check_single(values, samples=samples)


def check_single(values: Mapping[str, Any], *, samples: int) -> None:
    """DatasetError where a step has one value for each mean of a batch norm."""
    size, last = values["BATCH_SIZE"], samples % values["BATCH_SIZE"]
    part = values.get("MICRO_BATCH_SIZE") or size
    name = "MICRO_BATCH_SIZE" if values.get("MICRO_BATCH_SIZE") else "BATCH_SIZE"
    stem = values["RESNET50_STEM"]
    field = values["RESNET50_IMAGE_SIZE"] // (8 if stem == "small" else 32)
    if field <= 1 and 1 in (part, size % part, last % part):
        raise DatasetError(
            f"{name}={part} leaves one picture for a step, and RESNET50_STEM={stem} one pixel of it: "
            "batch norm needs more",
            hint=f"choose {name}={part + 1}, or RESNET50_STEM=small",
        )


if __name__ == "__main__":
    answer([*COMMON, check_data])
