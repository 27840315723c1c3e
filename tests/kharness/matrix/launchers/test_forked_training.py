"""LeNet-5 forked from the fork server and started fresh: the same losses to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kharness.runs.launch import Launch, Launcher, Slot

from ....warm_python import WarmPython
from .conftest import Runs

TIMES = ("time", "seconds", "per_sec", "rss", "path", "gpu_mem")


def measured(directory: Path) -> list[dict[str, Any]]:
    """The journal without what tells when, where and how fast."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [
        {key: value for key, value in record.items() if not any(word in key for word in (*TIMES, "sec_per"))}
        for record in records
        if record["event"] != "start"
    ]


def start(directory: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((directory / "metrics.jsonl").read_text().splitlines()[0])
    return record


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and len(path.read_text().splitlines()) >= count


@pytest.mark.parametrize(
    ("slot", "settings"),
    [
        pytest.param(Slot(threads=2), ("NUM_THREADS=0", "DEVICE=cpu", "DETERMINISTIC=y"), id="the CPU"),
        pytest.param(Slot(), ("DEVICE=cuda", "DETERMINISTIC=y"), id="a GPU", marks=pytest.mark.gpu),
    ],
)
def test_losses_and_weights_are_the_same_to_the_last_bit(
    launchers: dict[str, Launcher],
    forked: Runs,
    root: Path,
    tmp_path: Path,
    warm_python: WarmPython,
    wait_until: Callable[[Callable[[], bool]], None],
    slot: Slot,
    settings: Sequence[str],
) -> None:
    found, numerics = {}, {}
    for kind in ("forked", "fresh"):
        directory = tmp_path / kind / "run"
        given = [f"CONFIG_{setting}" for setting in ("MAX_STEPS=12", "LENET5_SHIFT=1", *settings)]
        command = ["scripts/kconfig.py", "defconfig", f"O={directory}", "TRACKER=none"]
        assert warm_python.run([*command, *given], cwd=root).returncode == 0
        forked.launcher = launchers[kind]
        ended = forked.end(forked.launcher.submit(Launch(kind, directory, root, "lenet5", {}), slot))
        assert ended.exit_code == 0, (directory / "output.log").read_text()
        found[kind], numerics[kind] = measured(directory), start(directory)["numerics"]
        # Its agent outlives it, and brings the CSV to the end.
        wait_until(partial(has_lines, directory / "metrics.csv", 13))
    assert [record["event"] for record in found["forked"]].count("step") == 12
    assert found["forked"] == found["fresh"]
    assert numerics["forked"] == numerics["fresh"]
    assert numerics["forked"]["cublas_workspace"] == ":4096:8"
