"""README.md: its script runs, and its figures are those of the pages that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from monitoring.journal.records import read_records

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
TRACKERS = ("kharness", "trackio", "wandb offline", "SummaryWriter")


def test_script_of_five_lines_records_what_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [script] = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    assert len([line for line in script.splitlines() if line]) <= 5
    monkeypatch.chdir(tmp_path)
    exec(script, {"train": lambda: iter([3.0, 2.0])})
    records = [record for record, _ in read_records(tmp_path / "results/mine/metrics.jsonl")]
    assert [record["train_loss"] for record in records if record["event"] == "step"] == [3.0, 2.0]
    assert records[-1]["event"] == "end"


def measured() -> Mapping[str, list[float]]:
    """The table of `log_step` in docs/benchmarks.md."""
    lines = re.findall(rf"^({'|'.join(TRACKERS)}) +(\d.*)$", BENCHMARKS, flags=re.M)
    return {
        name: [float(word) for word in re.findall(r"[+-]?\d+\.?\d*", rest)]
        for name, rest in reversed(lines)
        if rest.count("%") == 2
    }


def row(begins: str) -> list[str]:
    [line] = [line for line in README.splitlines() if line.startswith(f"| {begins}")]
    return [cell.strip() for cell in line.split("|")[2:-2]]


def test_costs_are_the_measured_ratios() -> None:
    table = measured()
    in_a_step = [table[name][2] / table["kharness"][2] for name in TRACKERS]
    assert [float(cell.split()[0]) for cell in row("A record")] == [float(f"{one:.2g}") for one in in_a_step]


def test_readable_records_are_the_measured_ones() -> None:
    readable = [table[-1] for table in (measured()[name] for name in TRACKERS)]
    assert [float(cell.replace(",", "")) for cell in row("Readable")] == readable
