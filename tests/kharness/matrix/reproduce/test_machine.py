"""Machines are compared before results, and differences that break bitwise equality are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from kharness.matrix.reproduce.reproduce import ReproducedRun
from monitoring.journal.bit_equal import machine_differences

NUMERICS = {
    "deterministic_algorithms": True,
    "cublas_workspace": ":4096:8",
    "tf32_convolution": True,
    "gpu": "NVIDIA H200",
    "compute_capability": "9.0",
    "cudnn": 91002,
    "driver": "570.86.15",
}
START: dict[str, Any] = {
    "event": "start",
    "seq": 1,
    "attempt": 1,
    "device": "cuda:0 (NVIDIA H200, found)",
    "cpu_threads": 1,
    "hardware": {"cpu": "a CPU", "gpus": ["NVIDIA H200"]},
    "versions": {"python": "3.12.3", "torch": "2.13.0"},
    "config": {"DETERMINISTIC": True},
    "numerics": NUMERICS,
}


def written(directory: Path, **changed: Any) -> Path:
    directory.mkdir()
    (directory / "metrics.jsonl").write_bytes(orjson.dumps({**START, **changed}) + b"\n")
    return directory


def test_what_decides_a_gpus_bits_is_compared_first_and_named(tmp_path: Path) -> None:
    before = written(tmp_path / "before")
    again = written(
        tmp_path / "again",
        numerics={**NUMERICS, "gpu": "NVIDIA A10G", "compute_capability": "8.6", "driver": "580.1"},
        hardware={"cpu": "a CPU", "gpus": ["NVIDIA A10G"]},
        versions={"python": "3.12.3", "torch": "2.14.0"},
    )
    assert machine_differences(before, before) == []
    assert machine_differences(before, again) == [
        "compute_capability: 9.0, now 8.6",
        "driver: 570.86.15, now 580.1",
        'gpus: ["NVIDIA H200"], now ["NVIDIA A10G"]',
        "torch: 2.13.0, now 2.14.0",
    ]


def test_a_run_that_did_not_record_them_differs_in_none_of_them(tmp_path: Path) -> None:
    earlier = {name: value for name, value in START.items() if name != "numerics"}
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "metrics.jsonl").write_bytes(orjson.dumps(earlier) + b"\n")
    assert machine_differences(tmp_path / "before", written(tmp_path / "again")) == []


@pytest.mark.parametrize(
    ("changed", "unpromised"),
    [
        ({}, ""),
        ({"config": {"DETERMINISTIC": False}}, "with DETERMINISTIC=n cuda:0 may give other bits each time"),
        ({"config": {}}, "with DETERMINISTIC=n cuda:0 may give other bits each time"),
        ({"config": {}, "device": "cpu (requested)"}, ""),
    ],
)
def test_same_bits_are_promised_of_a_cpu_and_of_a_deterministic_gpu(
    tmp_path: Path, changed: dict[str, Any], unpromised: str
) -> None:
    assert ReproducedRun.read(written(tmp_path / "run", **changed)).unpromised == unpromised
