"""The files of a summary, whole."""

from __future__ import annotations

import json
from pathlib import Path

from kharness.report.comparison_table import comparison, each_run, incomplete_lines
from kharness.report.report import write_files
from kharness.report.summary import collect
from kharness.report.writing.files import as_csv, as_markdown

from ..conftest import Make, MatrixDirectory, written_json

COMPARISON = """\
OPTIMIZER    n  test accuracy (%)  val accuracy (%)         val loss  training (s)     step (ms)
---------  ---  -----------------  ----------------  ---------------  ------------  ------------
sgd        2/2      75.00 ± 35.36     50.00 ± 35.36  0.5000 ± 0.3536     4.0 ± 0.0  25.00 ± 0.00
adam       1/2              75.00             50.00           0.5000           4.0         25.00"""

MARKDOWN = """\
# test_matrix_x

- axis OPTIMIZER: sgd, adam
- axis SEED: 1, 2
- model lenet5
- revision 0123abcd with uncommitted changes fedcba987654
- python 3.11.9, torch 2.13.0

## Comparison

| OPTIMIZER | n | test accuracy (%) | val accuracy (%) | val loss | training (s) | step (ms) |
| :--- | ---: | ---: | ---: | ---: | ---: | ---: |
| sgd | 2/2 | 75.00 ± 35.36 | 50.00 ± 35.36 | 0.5000 ± 0.3536 | 4.0 ± 0.0 | 25.00 ± 0.00 |
| adam | 1/2 | 75.00 | 50.00 | 0.5000 | 4.0 | 25.00 |

Mean ± sample standard deviation over seeds; n is the number of complete runs out of those planned, and \
a number that rests on fewer says so. One run has no deviation. Means alone name no winner.

- other work on the machine was not measured: times may hold it

## Who is better?

Compared with sgd in test accuracy, run by run of the same seed. With 95 % none of the verdicts *better*, \
*worse* and *the same* is wrong, however often seeds are added and looked at: they are given at the planned \
number of seeds (5 where fewer than 3 were), which spends 90 % of the error, and at its doublings, \
which share the rest; intervals are what those of all looks so far have in common, so that what is shown \
stays shown. \
*Better* and *worse* are written only where the interval leaves out zero, no planned run collapsed, both \
sides had the same budget of steps, and the better one did not train more than 50 % \
longer, where both did the same steps on as much data (batches of another size take another time). \
*No difference shown* does not mean equal: it says what these seeds would have shown in 80 % of all \
cases, and how many more would show a difference of the size found.

| variant | verdict | difference (points) | interval | p (all looks) | effect size | seeds |
| :--- | :--- | ---: | ---: | ---: | ---: | ---: |
| adam | not comparable | +25.00 | - | - | - | 1 |

- **adam** and sgd: not comparable in test accuracy; diverged in 1 of 2 seeds. \
Difference +25.00 points. Both had 4 steps; training took 4.0 s against 4.0 s. Without a partner of the same \
seed, left out: optimizer-sgd_seed-2. Not counted: optimizer-adam_seed-2: failed (exit code 1).

## Time to target

lenet5: the first validation with val_accuracy>=0.25 (target: the worst variant's median best validation, \
chosen from the results); medians over seeds. A run that ended without it, diverged, or ran out of memory or \
time counts as infinite; one that was stopped or killed from outside does not count. Ranks are those that a \
variant may truly have, by the intervals of all pairs; they are no verdict on who is better.

| variant | reached | median step | median training (s) | rank |
| :--- | ---: | ---: | ---: | ---: |
| sgd | 2/2 | 2 | 0.0 | - |
| adam | 1/2 | never | never | - |

Score: the area under the performance profile up to 4 times the fastest, as AlgoPerf has it; with one \
workload it says no more than the ratio.

| variant | score | time / fastest, lenet5 |
| :--- | ---: | ---: |
| sgd | 1.000 | 1.00 |
| adam | 0.000 | never |

## Quality and cost

| variant | test accuracy (%) | training (s) | Pareto-optimal in |
| :--- | ---: | ---: | ---: |
| sgd | 75.00 | 4.0 | time |
| adam | 75.00 | 4.0 | time |

Not known: CPU memory, energy, cost.

On a front (Pareto) is what no other variant is shown to beat: with fewer than 3 seeds nothing is shown, and \
all are on it.

## Not complete: 1 of 4

- optimizer-adam_seed-2: failed (exit code 1); no output

## Runs

| run | status | steps | test accuracy (%) | val accuracy (%) | val loss | training (s) | step (ms) |
| :--- | :--- | ---: | ---: | ---: | ---: | ---: | ---: |
| optimizer-sgd_seed-1 | complete | 4/4 | 50.00 | 75.00 | 0.2500 | 4.0 | 25.00 |
| optimizer-sgd_seed-2 | complete | 4/4 | 100.00 | 25.00 | 0.7500 | 4.0 | 25.00 |
| optimizer-adam_seed-1 | complete | 4/4 | 75.00 | 50.00 | 0.5000 | 4.0 | 25.00 |
| optimizer-adam_seed-2 | failed | 2/2 | - | - | - | - | 15.00 |

- optimizer-adam_seed-2: 1 record with a value that is not finite
"""


def test_the_table_for_a_terminal(matrix: MatrixDirectory) -> None:
    assert comparison(collect(matrix.directory)).plain() == COMPARISON


def test_a_number_that_rests_on_fewer_runs_says_so(matrix: MatrixDirectory) -> None:
    journal = matrix.directory / "optimizer-sgd_seed-2" / "metrics.jsonl"
    journal.write_text(journal.read_text().replace("test_accuracy", "accuracy_of_the_test"))
    rows = comparison(collect(matrix.directory)).rows
    assert [row[2] for row in rows] == ["50.00 (n=1)", "75.00"]


def test_a_bar_in_a_value_does_not_break_the_table(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"TRACKER_RUN_NAME": ["a|b", "c"]})
    made.plan({"TRACKER_RUN_NAME": "a|b"})
    assert comparison(collect(made.directory)).markdown().splitlines()[-1] == "| a\\|b | 0/1 |"


def test_the_page_reads_on_its_own(matrix: MatrixDirectory) -> None:
    assert as_markdown(collect(matrix.directory)) == MARKDOWN


def test_the_page_links_output_and_shows_graphs_that_are_there(matrix: MatrixDirectory) -> None:
    (matrix.directory / "optimizer-adam_seed-2" / "output.log").write_text("Traceback")
    (matrix.directory / "graphs").mkdir()
    for name, numbers in (("training_loss", "step,loss\n1,2\n"), ("time_to_target", "step\n")):
        (matrix.directory / "graphs" / f"{name}.png").write_bytes(b"")
        (matrix.directory / "graphs" / f"{name}.csv").write_text(numbers)
    text = as_markdown(collect(matrix.directory))
    assert "failed (exit code 1); [output](optimizer-adam_seed-2/output.log)\n" in text
    assert "\n![training loss](graphs/training_loss.png)\n" in text
    assert "time_to_target" not in text


def test_json_keeps_every_run_and_nulls_what_was_not_measured(matrix: MatrixDirectory) -> None:
    content = written_json(collect(matrix.directory))
    assert content["num_runs"] == {"complete": 3, "failed": 1}
    assert content["replicate_axis"] == "SEED"
    assert content["runs"][3] == {
        "name": "optimizer-adam_seed-2",
        "values": {"OPTIMIZER": "adam", "SEED": "2"},
        "status": "failed",
        "reason": "exit code 1",
        "cause": None,
        "attempts": 1,
        "unstable": False,
        "known_failure": None,
        "last_step": 2,
        "num_steps": 2,
        "nonfinite_records": 1,
        "metrics": {
            "test_accuracy": None,
            "test_loss": None,
            "val_accuracy": None,
            "val_loss": None,
            "best_val_accuracy": None,
            "best_val_loss": None,
            "train_loss": None,
            "sparsity": None,
            "training_seconds": None,
            "training_cpu_seconds": None,
            "other_work": None,
            "sec_per_step": 0.015,
            "peak_gpu_memory": None,
            "peak_cpu_memory": None,
            "energy_joules": None,
            "cost": None,
        },
        "gpus": None,
    }
    assert content["variants"][1]["metrics"]["test_accuracy"] == {
        "n": 1,
        "mean": 0.75,
        "std": None,
        "low": None,
        "high": None,
    }


def test_csv_has_a_row_a_variant_with_unrounded_numbers(matrix: MatrixDirectory) -> None:
    header, sgd, adam = (line.split(",") for line in as_csv(collect(matrix.directory)).splitlines())
    assert header[:10] == [
        *("variant", "OPTIMIZER", "num_planned", "num_complete"),
        *("num_unstable", "num_stopped_early", "num_known_failures"),
        *("test_accuracy_n", "test_accuracy_mean", "test_accuracy_std"),
    ]
    assert sgd[:10] == ["sgd", "sgd", "2", "2", "0", "0", "0", "2", "0.75", "0.3535533905932738"]
    assert adam[:10] == ["adam", "adam", "2", "1", "0", "0", "0", "1", "0.75", ""]


def test_the_same_directories_give_the_same_files(matrix: MatrixDirectory) -> None:
    paths = write_files(collect(matrix.directory))
    assert [path.name for path in paths] == [
        *("summary.json", "summary.csv", "summary.md", "junit.xml", "report.html")
    ]
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write_files(collect(matrix.directory))] == first
    assert json.loads(first[0])["name"] == "test_matrix_x"


def test_a_matrix_without_any_data_still_reports(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"]})
    for name in ("sgd", "adam"):
        made.plan({"OPTIMIZER": name})
    summary = collect(made.directory)
    assert comparison(summary).rows == [["sgd", "0/1"], ["adam", "0/1"]]
    assert each_run(summary).rows == [["optimizer-sgd", "missing", "-"], ["optimizer-adam", "missing", "-"]]
    assert incomplete_lines(summary) == [
        "optimizer-sgd: missing (it has no directory)",
        "optimizer-adam: missing (it has no directory)",
    ]
    assert len(write_files(summary)) == 5
    assert summary.warnings == []
