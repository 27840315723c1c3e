"""Requirements of a GPT-2 training, checked before it begins: the common ones and its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.training.datasets import check_dataset, check_tokenizer, load_dataset, manifest_of
from kharness.training.due import check_plan
from kharness.training.errors import DatasetError
from kharness.training.needs import COMMON, answer

ROOT = Path(__file__).resolve().parent.parent


def check_data(values: Mapping[str, Any]) -> None:
    """TrainingError where DATASET is not prepared, too small for the plan, or no samples can be written."""
    name = values["DATASET"]
    check_dataset(name, values, ROOT)
    if (manifest := manifest_of(name, values, ROOT)) is not None:
        train, validation = manifest.tokens("train"), manifest.tokens("validation")
    else:
        text = load_dataset(name, values, ROOT)
        train, validation = len(text.train), len(text.validation)
    block_size = values["GPT2_BLOCK_SIZE"]
    samples = blocks_of("training", train, block_size)
    blocks_of("validation", validation, block_size)
    check_plan(values, samples=samples, tokens_per_sample=block_size)
    if values["GPT2_SAMPLE_TOKENS"]:
        check_tokenizer(name, values, ROOT, text=values["GPT2_SAMPLE_PROMPT"])


def blocks_of(split: str, tokens: int, block_size: int) -> int:
    """Non-overlapping blocks with the token after each; DatasetError where a split is shorter than one."""
    if tokens <= block_size:
        raise DatasetError(
            f"GPT2_BLOCK_SIZE={block_size} is longer than the {split} text of {tokens} tokens",
            hint="choose shorter blocks",
        )
    return (tokens - 1) // block_size


if __name__ == "__main__":
    answer([*COMMON, check_data])
