"""LeNet-5 forked from the zygote and started fresh: the same losses to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kharness.runs.launch import Launch, Slot

TIMES = ("time", "seconds", "per_sec", "rss", "path")


def measured(directory: Path) -> list[dict[str, Any]]:
    """The journal without what tells when, where and how fast."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [
        {key: value for key, value in record.items() if not any(word in key for word in (*TIMES, "sec_per"))}
        for record in records
        if record["event"] != "start"
    ]


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and len(path.read_text().splitlines()) >= count


@pytest.mark.parametrize(
    ("threads", "slot"),
    [(0, Slot(threads=2)), (1, Slot())],
    ids=["threads of the slot", "threads of the cell"],
)
def test_losses_and_weights_are_the_same_to_the_last_bit(
    launchers: Any,
    forked: Any,
    root: Path,
    tmp_path: Path,
    wait_until: Callable[[Callable[[], bool]], None],
    threads: int,
    slot: Slot,
) -> None:
    found = {}
    for kind in ("forked", "fresh"):
        directory = tmp_path / kind / "run"
        settings = [f"CONFIG_NUM_THREADS={threads}", "CONFIG_MAX_STEPS=12", "CONFIG_LENET5_SHIFT=1"]
        command = [sys.executable, "scripts/kconfig.py", "defconfig", f"O={directory}", "TRACKER=none"]
        subprocess.run([*command, *settings], cwd=root, check=True, capture_output=True)
        forked.launcher = launchers[kind]
        ended = forked.end(forked.launcher.submit(Launch(kind, directory, root, "lenet5", {}), slot))
        assert ended.exit_code == 0, (directory / "output.log").read_text()
        found[kind] = measured(directory)
        # Its agent outlives it, and brings the CSV to the end.
        wait_until(partial(has_lines, directory / "metrics.csv", 13))
    assert [record["event"] for record in found["forked"]].count("step") == 12
    assert found["forked"] == found["fresh"]
