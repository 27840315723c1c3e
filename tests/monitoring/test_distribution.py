"""lib/monitoring as a distribution of its own: what its wheel holds, and that it works with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"

# In an interpreter without the test environment's packages: record, have the agent follow, tail and show.
PROGRAM = """
import sys
from pathlib import Path

from monitoring import Run
from monitoring.agent.follow import main as follow
from monitoring.journal.tail import RecordTail
from monitoring.telemetry import TelemetryTracker
from verbose_logging import VerboseLoggingCallback
import monitoring.callbacks, monitoring.gpu_dashboard, monitoring.gpu_monitor, monitoring.terminal.app

with Run("run", name="run", project="plain", config={}) as run, TelemetryTracker().timer("step"):
    run.log_step(1, train_loss=0.5)
assert follow(["run"]) == 0
tail = [record["event"] for record in RecordTail(Path("run/metrics.jsonl")).new()]
print(tail, Path("run/metrics.csv").read_text().count("\\n"))
print(sorted({"torch", "numpy", "kharness", "transformers"} & set(sys.modules)))
"""


def project(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return found


@pytest.fixture
def wheel(root: Path, tmp_path: Path) -> zipfile.ZipFile:
    """Built as pip builds it, of a copy, which stays as it is."""
    lib = tmp_path / "lib"
    lib.mkdir()
    for name in ("VERSION", "pyproject.toml", "setup.py", "verbose_logging.py"):
        shutil.copyfile(root / "lib" / name, lib / name)
    shutil.copytree(root / "lib/monitoring", lib / "monitoring", ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(lib.rglob("*"))
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    done = subprocess.run(command, cwd=lib, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(lib.rglob("*")) == before
    return zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1])


def test_what_it_needs_is_what_the_tree_says(root: Path) -> None:
    whole, own = project(root / "pyproject.toml"), project(root / "lib/pyproject.toml")
    extras = own["optional-dependencies"]
    assert own["name"] == "kharness-monitoring"
    for name in ("dynamic", "requires-python", "license", "dependencies"):
        assert own[name] == whole[name]
    of_harness = {"bpe", "config", "dashboard", "hub", "optimizers", "report", "sweep"}
    assert extras == {
        name: needs for name, needs in whole["optional-dependencies"].items() if name not in of_harness
    }


def test_the_wheel_holds_the_library_and_works_without_torch_and_kharness(
    root: Path, tmp_path: Path, wheel: zipfile.ZipFile
) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    version = (root / "lib/VERSION").read_text()
    assert metadata == f"kharness_monitoring-{version.strip()}.dist-info/METADATA"
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = {
        path
        for pattern in ("*.py", "*.yml", "*.json", "py.typed")
        for path in (root / "lib/monitoring").rglob(pattern)
    }
    sources |= {path for path in (root / "lib/monitoring/web/page").rglob("*") if path.is_file()}
    assert held == {str(path.relative_to(root / "lib")) for path in sources} | {"verbose_logging.py"}

    wheel.extractall(tmp_path / "alone")
    for needed in (orjson, psutil):
        folder = Path(str(needed.__file__)).parent
        (tmp_path / "alone" / folder.name).symlink_to(folder)
    bare = sys._base_executable  # type: ignore[attr-defined]  # not that of the test environment
    done = subprocess.run(
        [bare, "-S", "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "alone")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['step', 'end'] 3\n[]\n", "")
