"""Datasets, one module each: `Options`, `fetch`, `check` and `load`. None of them needs torch.

`fetch(options, root, sources) -> Path` brings the files where `load(options, root)` reads and verifies them,
and returns the folder; `check(options, root)` raises a DatasetError if they are not there, without reading
them. A module may take them from a value that says what the dataset is, as of a HubDataset. `root` is the
repository, where relative paths start. A dataset and the models that train on it agree on what `load`
returns.

`make data` fetches all datasets of the model, but a module with `ON_REQUEST = True` only as the DATASET.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.training.errors import DatasetError
from monitoring.dropins import DropIns

DATASETS = DropIns(
    "dataset",
    "kharness.training.datasets",
    symbols={"data_dir": "DATA_DIR", "tokenizer": "TOKENIZER", "vocabulary": "TOKENIZER_VOCABULARY"},
    unknown=DatasetError,
    refused=DatasetError,
)


def load_dataset(name: str, config: Mapping[str, Any], root: Path) -> Any:
    """What the dataset `name` loads, with its options in a configuration."""
    return DATASETS.load(name).load(DATASETS.options(name, config), root)


def check_dataset(name: str, config: Mapping[str, Any], root: Path) -> None:
    """DatasetError if the files of the dataset `name` are not there."""
    DATASETS.load(name).check(DATASETS.options(name, config), root)
