"""The logs of the documented test, written once; and a class of callbacks without Hugging Face."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.verbose_logging.trainer_callback import callback_class


@pytest.fixture(scope="module")
def without_transformers() -> Iterator[None]:
    """As where transformers is not installed: importing it takes many seconds."""
    callback_class.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        patch.delitem(sys.modules, "verbose_logging", raising=False)
        yield
    callback_class.cache_clear()
    sys.modules.pop("verbose_logging", None)


@pytest.fixture(scope="module")
def written(root: Path, tmp_path_factory: pytest.TempPathFactory, without_transformers: None) -> Path:
    """A folder in which the documented test was run: a log of each level, that of `high` with its name."""
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(str(root / "examples/test_verbose_logging.py"), run_name="__main__")
    (folder / "verbose_training_logs.jsonl").write_bytes(
        (folder / "test_verbose_logs_high.jsonl").read_bytes()
    )
    return folder
