"""`make sweep` from outside: the script as a process, with a model whose best learning rate is 0.01."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.matrix.sweep.sweep import prepare_sweep

from ..conftest import Checkout
from ..test_dry_run import put_run

# The search has a space of its own in which a random draw is mostly bad.
SEARCH = 'CONFIG_BEHAVIOR="bowl"\nCONFIG_LEARNING_RATE="1e-8..1e4 log"\nCONFIG_NUM_STEPS=1\n'


def sweep(checkout: Checkout, ranges: str, *arguments: str) -> tuple[int, str]:
    (checkout.root / "my.ranges").write_text(ranges)
    return checkout.run("sweep", f"RANGE_CONFIG={checkout.root / 'my.ranges'}", *arguments)


def plan(checkout: Checkout) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkout.latest / "matrix.json").read_text())
    return found


def rates(checkout: Checkout) -> list[str]:
    return [cell["values"]["LEARNING_RATE"] for cell in plan(checkout)["cells"]]


def ranked(checkout: Checkout) -> list[str]:
    """The leaderboard without names: a kill before a trial is planned leaves its name to nobody."""
    rows = (checkout.latest / "leaderboard.csv").read_text().splitlines()
    return [row.rpartition(",")[0] for row in rows]


def start_config(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().partition("\n")[0])["config"]
    return config


def test_a_grid_trains_every_combination_and_ranks_them(checkout: Checkout) -> None:
    ranges = 'CONFIG_BEHAVIOR="bowl"\nCONFIG_LEARNING_RATE="1e-3|0.02|1"\nCONFIG_NUM_STEPS="1:1:2"\n'
    code, output = sweep(checkout, ranges)
    assert code == 0, output
    lines = output.splitlines()
    name = checkout.latest.name
    assert lines[1:4] == [
        "sweep: grid, 6 trials (LEARNING_RATE=1e-3|0.02|1 NUM_STEPS=1:1:2)",
        f"  in results/{name}",
        "  a time left is shown once the first run is under way",
    ]
    begin = lines.index(f"{name}: val_loss (smaller is better), 6 configurations")
    assert lines[begin + 2 : begin + 10] == [
        "rank  LEARNING_RATE  NUM_STEPS  steps  val_loss   best val_loss  trial",
        "----  -------------  ---------  -----  ---------  -------------  ------------------------------",
        "1     0.02           1          1      0.0906191  0.0906191      learning-rate-0.02_num-steps-1",
        "2     0.02           2          2      0.0906191  0.0906191      learning-rate-0.02_num-steps-2",
        "3     1e-3           1          1      1          1              learning-rate-1e-3_num-steps-1",
        "4     1e-3           2          2      1          1              learning-rate-1e-3_num-steps-2",
        "5     1              1          1      4          4              learning-rate-1_num-steps-1",
        "6     1              2          2      4          4              learning-rate-1_num-steps-2",
    ]
    assert lines[-6:-1] == [
        "note: budgets differ (steps 1 to 2): a rank above one that had less shows nothing",
        "note: which ranks cannot be separated is unknown: "
        "of a single seed only an accuracy has a known error",
        "note: the first of 6 configurations was chosen by the validation set that it is shown with: "
        "expect less of it",
        "next: compare the first with the default on the test set, by seeds that the sweep has not used:",
        "  make test_matrix CONFIG_BEHAVIOR=bowl "
        "'CONFIG_MATRIX_AXES=LEARNING_RATE=0.1 NUM_STEPS=3 SEED=101..105' "
        "'CONFIG_MATRIX_INCLUDE=LEARNING_RATE=0.02 NUM_STEPS=1 SEED=101..105'",
    ]
    for run in sorted(checkout.latest.glob("learning-rate-*")):
        asked = re.fullmatch(r"learning-rate-(.*)_num-steps-(.*)", run.name)
        assert asked is not None
        config = start_config(run)
        assert (config["LEARNING_RATE"], config["NUM_STEPS"]) == (float(asked[1]), int(asked[2]))
        assert f'CONFIG_LEARNING_RATE="{asked[1]}"\n' in (run / ".config").read_text()


def test_the_files_hold_every_configuration_with_its_seeds(checkout: Checkout) -> None:
    ranges = "CONFIG_OPTIMIZER=all\nCONFIG_SEED=1..2\n"
    code, output = sweep(checkout, ranges, "CONFIG_BEHAVIOR=crash@2", "CONFIG_SWEEP_METRIC=val_accuracy")
    assert code == 3, output
    board = json.loads((checkout.latest / "leaderboard.json").read_text())
    assert (board["metric"], board["direction"]) == ("val_accuracy", "maximize")
    assert [(r["values"], r["mean"], r["complete"], r["trials"]) for r in board["rows"]] == [
        ({"OPTIMIZER": "sgd"}, 0.5, 1, ["optimizer-sgd_seed-1", "optimizer-sgd_seed-2"]),
        ({"OPTIMIZER": "adam"}, 0.25, 1, ["optimizer-adam_seed-1", "optimizer-adam_seed-2"]),
    ]
    assert [(one["name"], one["state"], one["reason"]) for one in board["incomplete"]] == [
        ("optimizer-adam_seed-2", "failed", "exit code 1: RuntimeError: the loss is a banana"),
        ("optimizer-sgd_seed-2", "failed", "exit code 1: RuntimeError: the loss is a banana"),
    ]
    rows = list(csv.reader((checkout.latest / "leaderboard.csv").read_text().splitlines()))
    assert rows[:2] == [
        ["rank", "OPTIMIZER", "val_accuracy", "std", "best_val_accuracy", "complete", "planned", "trials"],
        ["1", "sgd", "0.5", "", "0.5", "1", "2", "optimizer-sgd_seed-1 optimizer-sgd_seed-2"],
    ]
    text = (checkout.latest / "leaderboard.md").read_text()
    assert "| 1 | sgd | 0.5 | 0.5 | 1/2 |\n" in text
    assert "- optimizer-adam_seed-2: exit code 1: RuntimeError: the loss is a banana\n" in text
    assert "**The first of 2 configurations was chosen by the validation set" in text
    assert board["confirm_words"] == (
        "compare the first with the second on the test set, by seeds that the sweep has not used"
    ), "the default is the first"


def test_seeds_tell_which_ranks_are_shown(checkout: Checkout) -> None:
    """The pretender has one accuracy for all seeds, which says nothing of chance; so they get some spread."""
    ranges = "CONFIG_OPTIMIZER=all\nCONFIG_SEED=1..3\n"
    code, output = sweep(checkout, ranges, "CONFIG_SWEEP_METRIC=val_accuracy")
    assert code == 0, output
    assert "note: equal steps: 3\n" in output
    for run in checkout.latest.glob("optimizer-*"):
        path, seed = run / "metrics.jsonl", int(run.name[-1])
        path.write_text(path.read_text().replace('"val_accuracy":0.', f'"val_accuracy":0.{"024"[seed - 1]}'))
    lines: list[str] = []
    assert told_leaderboard(checkout.latest, lines.append) == 0
    board = json.loads((checkout.latest / "leaderboard.json").read_text())
    assert (board["budget_unit"], [row["budget"] for row in board["rows"]]) == ("steps", [[3], [3]])
    assert [row["rank_range"] for row in board["rows"]] == [[1, 2], [1, 2]]
    assert (
        "note: the first may truly have any of the ranks 1 to 2 "
        "(95 %, t tests with the deviation between seeds, pooled)"
    ) in "\n".join(lines)


def test_a_random_search_is_the_same_for_the_same_seed(checkout: Checkout) -> None:
    (checkout.root / "my.ranges").write_text(SEARCH)
    tree = Tree.load(checkout.root)
    found = []
    for seed in ("5", "5", "6"):
        asked = {"SWEEP_METHOD": "random", "SWEEP_TRIALS": "3", "SWEEP_SEED": seed}
        layer = [a for name, value in asked.items() for a in tree.assignments(name, value, Origin("x"))]
        prepared = prepare_sweep(tree, checkout.root, checkout.root / "my.ranges", layer)
        found.append([(cell.name, cell.values["LEARNING_RATE"]) for cell in prepared.cells])
    assert found[0] == found[1] != found[2]
    assert [name for name, _ in found[0]] == ["trial-0001", "trial-0002", "trial-0003"]
    rates = [float(rate) for _, rate in (*found[0], *found[2])]
    assert len(set(rates)) == 6
    assert all(1e-8 <= rate <= 1e4 for rate in rates)


def test_a_search_of_a_small_space_ends_with_it(checkout: Checkout) -> None:
    for method in ("random", "tpe"):
        code, output = sweep(checkout, "CONFIG_OPTIMIZER=all\n", f"CONFIG_SWEEP_METHOD={method}")
        assert code == 0, output
        tried = sorted(tuple(cell["values"].values()) for cell in plan(checkout)["cells"])
        assert tried == [("adam",), ("sgd",)]


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ('CONFIG_OPTIMIZER=all\nCONFIG_LEARNING_RATE="1e-3..1 log"\n', "estimate: 3:00"),
        ("CONFIG_OPTIMIZER=all\n", "estimate: 2:00"),  # there are no more than two trials
    ],
)
def test_how_long_a_search_takes_is_said_before_it_has_chosen_a_trial(
    checkout: Checkout, ranges: str, said: str
) -> None:
    put_run(checkout, "a", seconds=60)
    code, output = sweep(checkout, ranges, "CONFIG_SWEEP_METHOD=tpe", "CONFIG_SWEEP_TRIALS=3")
    lines = output.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("sweep: tpe, 3 trials ("))
    assert (code, lines[begin + 1 : begin + 3]) == (0, [f"  in results/{checkout.latest.name}", f"  {said}"])


def test_what_the_tree_refuses_is_no_trial_of_a_search(checkout: Checkout) -> None:
    ranges = 'CONFIG_OPTIMIZER=all\nCONFIG_ADAM_BETAS="0.9 0.9|0.8 0.9"\n'
    code, output = sweep(checkout, ranges, "CONFIG_SWEEP_METHOD=tpe")
    assert code == 0, output
    assert sorted(cell["values"]["ADAM_BETAS"] for cell in plan(checkout)["cells"]) == ["0.8 0.9", "0.9 0.9"]
    refused = plan(checkout)["refused"]
    assert [one["values"]["OPTIMIZER"] for one in refused] == ["sgd", "sgd"]
    assert "refused by the option tree: 2" in output


@pytest.mark.slow  # a search of 28 trainings in all, one after the other
def test_a_tpe_search_goes_on_after_a_kill_as_if_there_had_been_none(
    checkout: Checkout, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    asked = ("CONFIG_SWEEP_METHOD=tpe", "CONFIG_SWEEP_TRIALS=14")
    code, output = sweep(checkout, SEARCH, *asked)
    assert code == 0, output
    undisturbed = rates(checkout)
    first, board = checkout.latest, ranked(checkout)
    assert len(undisturbed) == 14

    process = checkout.start("sweep", f"RANGE_CONFIG={checkout.root / 'my.ranges'}", *asked)
    wait_until(lambda: checkout.latest != first and (checkout.latest / "trial-0012/metrics.jsonl").exists())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (checkout.root / ".config").write_text('CONFIG_BEHAVIOR="crash"\n')
    assert len(rates(checkout)) in (12, 13)
    code, output = checkout.run("continue")
    assert code == 0, output
    assert re.search(r"^sweep: [123] trials? left in results/sweep_", output, flags=re.M)
    assert rates(checkout) == undisturbed
    assert ranked(checkout) == board
    code, output = checkout.run("continue")
    assert (code, output.splitlines()[0]) == (
        0,
        f"sweep: 0 trials left in results/{checkout.latest.name}",
    )


@pytest.mark.parametrize(
    ("ranges", "arguments", "message"),
    [
        (SEARCH, [], "error: LEARNING_RATE=1e-8..1e4 log has no grid"),
        ("CONFIG_SEED=1|2", ["CONFIG_SWEEP_METHOD=tpe"], "error: SEED cannot be searched: "
         "it is no way to train better"),
        ("CONFIG_SEED=1|2", ["CONFIG_SWEEP_METRIC=test_loss"], "error: SWEEP_METRIC=test_loss: "
         "the test set chooses nothing"),
        ("CONFIG_SEED=1|2", ["FILTER=SEED=1"], "error: FILTER=SEED=1 means nothing to make sweep"),
        ("CONFIG_SEED=1|2", ["BASELINE=OPTIMIZER=sgd"], "error: BASELINE has no effect on a sweep"),
        ("CONFIG_SEED=1|2", ["CONFIG_SEED=3"], "error: 2 of 2 cells are refused"),
        ('CONFIG_ADAM_BETAS="0.9 0.9|0.8 0.9"', ["CONFIG_SWEEP_METHOD=random"],
         "error: 2 of 2 cells are refused"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_start_is_refused(
    checkout: Checkout, ranges: str, arguments: list[str], message: str
) -> None:
    code, output = sweep(checkout, ranges, *arguments)
    told = [line for line in output.splitlines() if not line.startswith("no .config yet")]
    assert (code, told[0]) == (2, message)
    assert not (checkout.root / "results").exists()
    assert not (checkout.root / ".config").exists()


def test_a_range_file_is_needed(checkout: Checkout) -> None:
    code, output = checkout.run("sweep")
    assert (code, output.splitlines()) == (
        2,
        [
            "error: RANGE_CONFIG is not given",
            'hint: make sweep RANGE_CONFIG=my.ranges, with lines such as CONFIG_LEARNING_RATE="0.01|0.05"',
        ],
    )


def test_a_sweep_without_its_metric_has_no_best_trial(checkout: Checkout) -> None:
    code, output = sweep(checkout, "CONFIG_SEED=1..2", "CONFIG_SWEEP_METRIC=val_aux_loss")
    assert code == 3
    assert output.splitlines()[-5:] == [
        "not complete, in no row: 2 of 2 trials",
        "  seed-1: no val_aux_loss (and 1 other alike)",
        "no trial is complete and has val_aux_loss: there is no best one",
        "hint: SWEEP_METRIC=NAME takes another metric of the validation set that trials have",
        f"leaderboard: results/{checkout.latest.name}/leaderboard.md",
    ]


def test_a_sweep_by_a_metric_without_a_direction_is_refused(checkout: Checkout) -> None:
    code, output = sweep(checkout, "CONFIG_SEED=1..2", "CONFIG_SWEEP_METRIC=val_wer")
    assert code == 2
    assert output.splitlines()[-2:] == [
        "error: SWEEP_METRIC=val_wer: which way it is better is unknown",
        "hint: write better.val_wer = down (or up), as CONFIG_REPORT_BETTER='better.val_wer = down'",
    ]
    assert not list(checkout.root.glob("results/*"))
