"""The logs of the documented test, written once."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...waiting import GUARD


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    """To start the process that writes a log may take a loaded machine more than ten seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monitoring.verbose_logging.hooks.LONGEST_WAIT", GUARD)
        yield


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
