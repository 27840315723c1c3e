"""The snippets of docs/run-directory.md for pandas and polars, run as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run
from monitoring.agent.follow import catch_up


@pytest.fixture
def resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the working directory a run whose second attempt did its last two of five steps again."""
    directory = tmp_path / "results" / "NAME"
    for losses, first, about in (
        ((5.0, 4.0, 3.0, 2.0, 1.0), 1, {}),
        ((2.5, 1.5), 4, {"resumed_from": {"global_step": 3}, "supersedes": {"first_seq": 5, "last_seq": 6}}),
    ):
        with Run(directory, name="n", project="p", config={"SEED": 1}, agent=False) as run:
            run.start(model={"name": "m"}, training={"num_steps": 5}, **about)
            for step, loss in enumerate(losses, start=first):
                run.log_step(step, train_loss=loss, lr=0.1, text="x" if step > 1 else None)
    with Run(directory, name="n", project="p", config={}, agent=False) as run:
        run.log_eval(5, split="val", val_loss=0.25)
    catch_up(directory)
    monkeypatch.chdir(tmp_path)
    return directory


def snippet(root: Path, package: str) -> dict[str, Any]:
    """The names that the block has given when it was run."""
    text = (root / "docs/run-directory.md").read_text()
    [code] = [it for it in re.findall(r"```python\n(.*?)```", text, flags=re.S) if f"import {package} " in it]
    given: dict[str, Any] = {}
    exec(code, given)
    return given


def test_pandas_has_each_step_that_counts_once(root: Path, resumed: Path) -> None:
    given = snippet(root, "pandas")
    assert given["steps"]["train_loss"].to_dict() == {1: 5.0, 2: 4.0, 3: 3.0, 4: 2.5, 5: 1.5}
    assert given["smooth"].to_dict() == {1: 5.0, 2: 4.5, 3: 4.0, 4: 3.5, 5: 3.0}
    assert str(given["records"]["time"].dtype).endswith("UTC]")


def test_polars_has_the_last_of_each_step(root: Path, resumed: Path) -> None:
    given = snippet(root, "polars")
    losses = given["steps"].select("global_step", "train_loss").rows()
    assert losses == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.5), (5, 1.5)]
    assert given["evaluations"].rows() == [(5, 0.25)]
