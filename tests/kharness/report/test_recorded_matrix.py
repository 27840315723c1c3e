"""A recorded matrix of real trainings, one of them killed (tests/data/recorded_matrix)."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from kharness.report.comparison_table import each_run
from kharness.report.errors import ReportError
from kharness.report.report import report_lines, write_all
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

REPORT = """
OPTIMIZER    n  test accuracy (%)  val accuracy (%)         val loss  training (s)     step (ms)
---------  ---  -----------------  ----------------  ---------------  ------------  ------------
sgd        2/2       76.15 ± 4.45      74.67 ± 0.00  0.9598 ± 0.2392     2.1 ± 0.1  44.98 ± 3.61
adamw      1/2              86.60             83.00           0.5799           1.9         38.14

mean ± sample standard deviation over seeds; n: complete runs of those planned
not complete, in no mean: 1 of 4
  optimizer-adamw_seed-2: killed (signal 9 (SIGKILL))
other work on the machine was not measured: times may hold it
budget: equal samples: 10,800
test accuracy compared with sgd (95 % intervals):
  adamw  +7.30 points  undecided: one common seed: chance cannot be separated from a difference  \
[1 run not counted]"""

RUNS = [
    ["optimizer-sgd_seed-1", "complete", "44/44", "79.30"],
    ["optimizer-sgd_seed-2", "complete", "44/44", "73.00"],
    ["optimizer-adamw_seed-1", "complete", "44/44", "86.60"],
    ["optimizer-adamw_seed-2", "killed", "16/44", "-"],
]


@pytest.fixture
def recorded(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root / "tests" / "data" / "recorded_matrix", tmp_path / "recorded_matrix"))


def test_the_report_of_real_trainings(recorded: Path) -> None:
    summary = collect(recorded)
    write_all(summary)
    assert "\n".join(report_lines(summary)) == REPORT


def test_a_report_without_graphs_has_the_tables(recorded: Path) -> None:
    before = set(recorded.iterdir())
    summary = collect(recorded, {"CONFIG_REPORT_GRAPHS": "n"})
    write_all(summary)
    written = {path.name for path in set(recorded.iterdir()) - before}
    assert written == {"summary.json", "summary.csv", "summary.md", "junit.xml", "report.html"}
    assert "<img" not in (recorded / "report.html").read_text()
    assert (recorded / "summary.md").read_text() == as_markdown(summary)
    with pytest.raises(ReportError, match="CONFIG_REPORT_GRAPHS=few is neither y nor n"):
        collect(recorded, {"CONFIG_REPORT_GRAPHS": "few"})


def test_every_real_training(recorded: Path) -> None:
    assert [list(row[:4]) for row in each_run(collect(recorded)).rows] == RUNS


def test_the_numbers_are_those_of_the_journals(recorded: Path) -> None:
    """Against a reading that shares no code with the report's."""
    write_all(collect(recorded, {"CONFIG_REPORT_GRAPHS": "n"}))
    summary = json.loads((recorded / "summary.json").read_text())
    ends = {}
    for journal in recorded.glob("*/metrics.jsonl"):
        last = json.loads(journal.read_text().splitlines()[-1])
        if last["event"] == "end":
            ends[journal.parent.name] = last
    sgd = [ends["optimizer-sgd_seed-1"]["test_accuracy"], ends["optimizer-sgd_seed-2"]["test_accuracy"]]
    mean = (sgd[0] + sgd[1]) / 2
    std = abs(sgd[0] - sgd[1]) / 2**0.5
    found = summary["variants"][0]["metrics"]["test_accuracy"]
    half = math.tan(0.475 * math.pi) * std / 2**0.5  # Student's t of one degree of freedom is Cauchy's
    assert found == {
        "n": 2,
        "mean": pytest.approx(mean, rel=1e-12),
        "std": pytest.approx(std, rel=1e-12),
        "low": pytest.approx(mean - half, rel=1e-12),
        "high": pytest.approx(mean + half, rel=1e-12),
    }
    assert summary["num_runs"] == {"complete": 3, "killed": 1}
