"""Datasets, one module each: `Options`, `fetch`, `check` and `load`. None of them needs torch.

`fetch(options, root, sources) -> Path` brings the files where `load(options, root)` reads and verifies them,
and returns the folder; `check(options, root)` raises a DatasetError if they are not there, without reading
them. A module may take them from a value that says what the dataset is, as of a HubDataset. `root` is the
repository, where relative paths start. A dataset and the models that train on it agree on what `load`
returns.

A plan is judged by how much there is to train on before anything is made: a module of pictures defines
`count(options, root) -> int`, the training pictures, and one of prepared text
`manifest(options, root) -> Manifest`; both without reading more than that takes, and after `check`. A text
without `manifest` is loaded.

`make data` fetches all datasets of the model, but a module with `ON_REQUEST = True` only as the DATASET.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kharness.training.errors import DatasetError
from monitoring.dropins import DropIns

DATASETS = DropIns(
    "dataset",
    "kharness.training.datasets",
    symbols={"data_dir": "DATA_DIR", "tokenizer": "TOKENIZER", "vocabulary": "TOKENIZER_VOCABULARY"},
    kconfig=("../../Kconfig", "../../../../*/Kconfig"),
    unknown=DatasetError,
    refused=DatasetError,
)


def load_dataset(name: str, config: Mapping[str, Any], root: Path) -> Any:
    """Load the dataset `name`, with its options from a configuration."""
    return DATASETS.load(name).load(DATASETS.options(name, config), root)


def pictures_of(name: str, config: Mapping[str, Any], root: Path) -> int | None:
    """Training pictures of the dataset `name`, None where the module does not count them."""
    module = DATASETS.load(name)
    return _counted(module.count, DATASETS.options(name, config), root) if hasattr(module, "count") else None


@cache  # cells of a plan train on the same, and to list a million files takes seconds
def _counted(count: Callable[[Any, Path], int], options: Any, root: Path) -> int:
    return count(options, root)


def manifest_of(name: str, config: Mapping[str, Any], root: Path) -> Any:
    """The manifest of the prepared text `name`, None where it is not prepared before it is loaded."""
    module = DATASETS.load(name)
    return module.manifest(DATASETS.options(name, config), root) if hasattr(module, "manifest") else None


def check_tokenizer(name: str, config: Mapping[str, Any], root: Path, *, text: str) -> None:
    """DatasetError where `text` cannot be made tokens here, of those that the text `name` was prepared in."""
    # not above: only text has tokens
    from kharness.training.datasets._texts import text_options, text_tokenizer

    options = DATASETS.options(name, config)
    if (manifest := manifest_of(name, config, root)) is None:
        load_dataset(name, config, root).open_tokenizer().encode(text)
        return
    text_tokenizer(manifest, text_options(options), root).encode(text)


def check_dataset(name: str, config: Mapping[str, Any], root: Path) -> None:
    """DatasetError if the files of the dataset `name` are not there."""
    DATASETS.load(name).check(DATASETS.options(name, config), root)
