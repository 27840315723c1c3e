"""`import kharness`: its names, what it costs to import, and the programs of docs/python.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kharness
from monitoring import read_records


def programs(root: Path) -> dict[str, str]:
    found = re.findall(r"```python\n# (\S+)\n(.*?)```", (root / "docs/python.md").read_text(), flags=re.S)
    return dict(found)


def recorded(directory: Path) -> list[dict[str, Any]]:
    kept = (
        "event",
        "attempt",
        "global_step",
        "loss",
        "val/loss",
        "supersedes",
        "resumed_from",
        "refused_step",
    )
    return [
        {name: record[name] for name in kept if name in record}
        for record, _ in read_records(directory / "metrics.jsonl")
    ]


def test_all_names_are_there_and_on_the_page(root: Path) -> None:
    page = (root / "docs/python.md").read_text()
    found = {name: getattr(kharness, name).__name__ for name in kharness.__all__}
    assert found == {name: name for name in kharness.__all__} | {"runs": "kharness.runs"}
    assert [name for name in kharness.__all__ if f"| `{name}" not in page] == []
    assert set(kharness.__all__) <= set(dir(kharness))
    with pytest.raises(AttributeError, match="module 'kharness' has no attribute 'Ran'"):
        _ = kharness.Ran  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_pyright_reads_the_types_as_mypy_does(root: Path, tmp_path: Path) -> None:
    """mypy has read the file with all others; without torch, which would take a quarter of a minute."""
    shutil.copy(root / "tests/kharness/public/typed_use.py", tmp_path)
    config = {
        "include": ["typed_use.py"],
        "extraPaths": [str(root / "lib")],
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    bare = Path(sys.base_prefix, "bin/python3")
    done = subprocess.run(
        [Path(sys.executable).with_name("pyright"), "-p", tmp_path, "--pythonpath", bare],
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0 errors, 0 warnings, 0 informations\n", done.stdout + done.stderr


def test_importing_it_imports_nothing() -> None:
    """Importing the package loads nothing slow: it was measured at 1.5 ms."""
    program = "import sys; before = set(sys.modules); import kharness; print(sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['__future__', 'kharness']\n"


def test_a_run_needs_a_directory_and_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(programs(root)["first.py"], {})
    run = recorded(tmp_path / "results/first")
    assert run == [
        {"event": "start", "attempt": 1},
        *({"event": "step", "attempt": 1, "global_step": step, "loss": loss}
          for step, loss in ((1, 0.7), (2, 0.5), (3, 0.4))),
        {"event": "step", "attempt": 1, "global_step": 3, "val/loss": 0.45},
        {"event": "end", "attempt": 1},
    ]  # fmt: skip
    with kharness.Run("results/first/../first", agent=False) as again:
        assert (again.name, again.project, again.attempt) == ("first", "results", 2)


def test_a_further_attempt_counts_from_its_first_step_on(tmp_path: Path) -> None:
    for steps in ((1, 2, 3), (3, 4), (None,)):
        with kharness.Run(tmp_path / "run", agent=False) as run:
            for step in steps:
                run.log(loss=1.0, step=step)
    starts = [record for record in recorded(tmp_path / "run") if record["event"] == "start"]
    assert starts == [
        {"event": "start", "attempt": 1},
        {"event": "start", "attempt": 2, "supersedes": {"first_seq": 4, "last_seq": 5},
         "resumed_from": {"global_step": 2}},
        {"event": "start", "attempt": 3, "supersedes": {"first_seq": 1, "last_seq": 9}, "resumed_from": None},
    ]  # fmt: skip


def test_steps_are_counted_over_threads_and_from_a_given_one(tmp_path: Path) -> None:
    with kharness.Run(tmp_path / "run", agent=False) as run:
        run.log(loss=0.0, step=10)

        def log() -> None:
            for _ in range(50):
                run.log(loss=1.0)

        threads = [threading.Thread(target=log) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.log(loss=2.0, step="x")  # type: ignore[arg-type]
        run.log(loss=3.0)
    steps = [record for record in recorded(tmp_path / "run") if record["event"] == "step"]
    assert sorted(record["global_step"] for record in steps if "global_step" in record) == [*range(10, 212)]
    assert [record for record in steps if "refused_step" in record] == [
        {"event": "step", "attempt": 1, "loss": 2.0, "refused_step": "'x'"}
    ]


@pytest.mark.parametrize("name", ["gpus.py", "times.py"])
def test_the_other_programs_of_the_page_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(programs(root)[name], {})
    assert name != "times.py" or "step" in capsys.readouterr().out
