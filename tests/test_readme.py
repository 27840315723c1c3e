"""README.md: its script runs, and its figures are those of the pages that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from monitoring.journal.records import read_records

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()


def test_script_of_five_lines_records_what_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [script] = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    assert len([line for line in script.splitlines() if line]) <= 5
    monkeypatch.chdir(tmp_path)
    exec(script, {"train": lambda: iter([3.0, 2.0])})
    records = [record for record, _ in read_records(tmp_path / "results/mine/metrics.jsonl")]
    assert [record["train_loss"] for record in records if record["event"] == "step"] == [3.0, 2.0]
    assert records[-1]["event"] == "end"


def figures(*names: str) -> list[list[float]]:
    """The rows of the first table of docs/benchmarks.md that has all of these names, as numbers."""
    rows = {
        tuple(re.split(r" {2,}", line)): line
        for block in re.findall(r"```text\n(.*?)```", BENCHMARKS, flags=re.S)
        if all(re.search(rf"^{re.escape(name)} ", block, flags=re.M) for name in names)
        for line in block.splitlines()
    }
    found = {
        words[0]: [float(re.sub("[ %]", "", word)) for word in words[1:]]
        for words in list(rows)[1:]
        if words[1:] and words[0] in names
    }
    return [found[name] for name in names]


def row(begins: str) -> list[str]:
    [line] = [line for line in README.splitlines() if line.startswith(f"| {begins}")]
    return [cell.strip() for cell in line.split("|")[2:-2]]


def first_numbers(cells: list[str]) -> list[float]:
    return [float(re.match(r"[\d.,]+\d|\d", cell)[0].replace(",", "")) for cell in cells]  # type: ignore[index]


def test_costs_are_the_measured_ratios() -> None:
    step = [numbers[2] for numbers in figures("kharness", "trackio", "wandb offline", "SummaryWriter")]
    assert first_numbers(row("A record")) == [float(f"{one / step[0]:.2g}") for one in step]
    sinks = [
        numbers[2]
        for numbers in figures("four sinks, a process each", "trackio", "wandb offline", "SummaryWriter")
    ]
    assert first_numbers(row("CPU time")) == [float(f"{one / sinks[0]:.2g}") for one in sinks]


def test_readable_records_are_the_measured_ones() -> None:
    readable = [numbers[-1] for numbers in figures("kharness", "trackio", "wandb offline", "SummaryWriter")]
    assert first_numbers(row("Readable")) == readable


def test_false_verdicts_are_the_simulated_ones() -> None:
    text = (ROOT / "docs/statistics-simulations.md").read_text()
    [of_6_variants] = re.findall(r"^\| normal \| \d+, (\d+), \d+ \|", text, flags=re.M)
    error = (float(of_6_variants) * (1 - float(of_6_variants) / 100)) ** 0.5
    assert row("False")[0] == f"{of_6_variants} ± {error:.0f} of 100 matrices"


def test_gpt_claim_is_the_measured_one() -> None:
    text = (ROOT / "docs/gpt2.md").read_text()
    [claimed] = re.findall(r"in\s\[(0\.\d+) of its CPU time\]\(docs/gpt2\.md#measured\)", README)
    assert f"a ratio of **{claimed}**" in " ".join(text.split())
