"""The shipped Filebeat input: options that Filebeat has, and files that a run has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run
from monitoring.agent.sample_threads.machine_sampling import SystemStats
from monitoring.journal.alerts import Alerts
from monitoring.journal.run_json import read_run_json

yaml = pytest.importorskip("yaml")

# By Filebeat's reference: "filestream input", "timestamp processor" and filebeat.reference.yml.
OPTIONS = {
    *("type", "id", "paths", "prospector.scanner.exclude_files", "file_identity.fingerprint"),
    *(f"prospector.scanner.fingerprint.{name}" for name in ("enabled", "offset", "length")),
    *(f"parsers.ndjson.{name}" for name in ("target", "add_error_key", "message_key", "overwrite_keys")),
    *(f"processors.timestamp.{name}" for name in ("field", "layouts", "ignore_missing", "timezone")),
}

# The least that `fingerprint.length` may be.
LEAST = 64


@pytest.fixture(scope="module")
def filestream(root: Path) -> dict[str, Any]:
    shipped = yaml.safe_load((root / "lib/monitoring/grafana/filebeat.yml").read_text())
    assert list(shipped) == ["filebeat.inputs"]
    [found] = shipped["filebeat.inputs"]
    return dict(found)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run of two ranks with a sample in a full file and an alert, alone and as a cell; and a link."""
    for directory in (tmp_path / "run", tmp_path / "matrix" / "cell"):
        for rank in (0, 1):
            with Run(directory, name="n", project="p", config={}, rank=rank, agent=False) as run:
                run.start(model={"name": "m"}, training={"num_steps": 1})
        Alerts(directory).add("r", "info", "m")
        samples = SystemStats(directory, read_run_json(directory), file_bytes=100, keep=2)
        samples.append({"cpu_usage_percent": 1.0})
        samples.close()
        (directory / "gpu_stats.jsonl.000000001-000000009.xz").touch()
    (tmp_path / "latest").symlink_to("run")
    return tmp_path


def leaves(options: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """The full names of options; those of a list of parsers or processors by their kinds."""
    for name, value in options.items():
        nested = value if isinstance(value, list) else [value]
        for one in nested:
            if isinstance(one, dict):
                yield from leaves(one, f"{before}{name}.")
            else:
                yield f"{before}{name}"


def read_by(filestream: Mapping[str, Any], results: Path) -> list[Path]:
    """The files that Filebeat would read, by its paths and exclusions."""
    patterns = [path.replace("${RESULTS}/", "") for path in filestream["paths"]]
    excluded = filestream["prospector.scanner"]["exclude_files"]
    found = sorted(path for pattern in patterns for path in results.glob(pattern))
    return [path for path in found if not any(re.search(one, str(path)) for one in excluded)]


def test_options_are_filebeats_own(filestream: dict[str, Any]) -> None:
    assert set(leaves(filestream)) <= OPTIONS
    assert (filestream["type"], filestream["id"]) == ("filestream", "kharness-runs")
    assert filestream["parsers"] == [{"ndjson": {"target": "kharness", "add_error_key": True}}]


def test_every_journal_is_read_once(filestream: dict[str, Any], results: Path) -> None:
    names = ("alerts.jsonl", "metrics.jsonl", "metrics.rank0001.jsonl", "system_stats.jsonl")
    expected = [results / place / name for place in ("matrix/cell", "run") for name in names]
    moved = [results / place / "system_stats.jsonl.000000001-000000001" for place in ("matrix/cell", "run")]
    assert read_by(filestream, results) == sorted([*expected, *moved])


def test_files_are_told_apart_and_read_from_their_first_record_on(
    filestream: dict[str, Any], results: Path
) -> None:
    """With the usual 1024 bytes a file of one alert is not read; a file that was just begun is empty."""
    length = filestream["prospector.scanner"]["fingerprint"]["length"]
    begins = [path.read_bytes() for path in read_by(filestream, results) if path.stat().st_size]
    assert length >= LEAST
    assert min(map(len, begins)) > length
    assert len({content[:length] for content in begins}) == len(begins) == 8
    assert min(map(len, begins)) < 1024
