"""`kharness sweep`: a search over any program, and what decides it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ....waiting import wait_until
from ..conftest import Begin, Command
from .test_commands import TRAINS, folder

__all__ = ["folder"]

SWEEP = ["-a", "lr=log:0.5..8", "-a", "seed=1", "--trials", 5, "--search-seed", 3]


def test_sweep_searches_and_names_the_command_that_confirms(folder: Path, kharness: Command) -> None:
    program = [sys.executable, TRAINS, "--lr", "{lr}", "--seed", "{seed}"]
    ended = kharness(folder, "sweep", *SWEEP, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    begins = lines.index("sweep: tpe, 5 trials (LR=log:0.5..8 SEED=1)")
    assert lines[begins + 2] == "  a time left is shown once the first run has ended"
    board = json.loads((folder / "results" / "latest" / "leaderboard.json").read_text())
    rates = [float(row["values"]["LR"]) for row in board["rows"]]
    losses = [row["mean"] for row in board["rows"]]
    assert losses == sorted(losses)
    assert len(set(rates)) == 5
    assert all(0.5 <= rate <= 8 for rate in rates)
    best, second = (row["values"]["LR"] for row in board["rows"][:2])
    options = ["-a", f"lr={second},{best}", "-a", "seed=101..105", "--better", "val_loss=down"]
    again = ["kharness", "matrix", *options, "--metric", "val_loss", "--", *map(str, program)]
    assert lines[-4:-1] == [
        "note: the first of 5 configurations was chosen by the validation set that it is shown with: "
        "expect less of it",
        "next: compare the first with the second, by seeds that the sweep has not used:",
        f"  {shlex.join(again)}",
    ]
    told = kharness(folder, "report").stdout.splitlines()  # the same, not a table with the test set
    begins = next(place for place, line in enumerate(lines) if "5 configurations" in line)
    assert told[1 : len(lines) - begins + 1] == lines[begins:]
    assert [line.partition(":")[0] for line in told[-3:]] == ["leaderboard", "summary", "page"]


def test_best_of_a_program_is_compared_as_it_says(folder: Path, kharness: Command) -> None:
    """The two best differ in both values, so that one is a run beside the axes."""
    printed = "x, y = {x}, {y}; print('step 1: val loss', abs(x - y) + x / 10)"
    words = ["sweep", "-a", "x=1,2", "-a", "y=1,2", "-a", "seed=1"]
    ended = kharness(folder, *words, "--", sys.executable, "-c", printed, "{seed}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    compared = kharness(folder, *shlex.split(ended.stdout.splitlines()[-2])[1:])
    assert compared.returncode == 0, compared.stdout + compared.stderr
    plan = json.loads((folder / "results" / "latest" / "matrix.json").read_text())
    assert [cell["values"] for cell in plan["cells"]] == [
        {"X": x, "Y": x, "SEED": str(seed)} for x in "21" for seed in range(101, 106)
    ]


def test_killed_sweep_chooses_the_trials_that_it_would_have_chosen(
    folder: Path, kharness: Command, begin_kharness: Begin
) -> None:
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir()
    killed.mkdir()
    words = [
        "sweep",
        *SWEEP,
        "--",
        sys.executable,
        TRAINS,
        "--lr",
        "{lr}",
        "--seed={seed}",
        "--pause",
        "0.02",
    ]
    assert kharness(whole, *words).returncode == 0
    runner = begin_kharness(killed, *words)
    wait_until(lambda: (killed / "results" / "latest" / "trial-0003").exists())
    runner.kill()
    runner.wait()
    sweep = killed / "results" / "latest"
    for trial in sweep.glob("trial-*"):  # as if it was killed between two trials
        status = trial / "status.json"  # the directory is there before its files
        if not status.exists() or json.loads(status.read_text())["status"] != "complete":
            shutil.rmtree(trial)
    plan = json.loads((sweep / "matrix.json").read_text())
    plan["cells"] = [one for one in plan["cells"] if (sweep / one["name"]).exists()]
    (sweep / "matrix.json").write_text(json.dumps(plan))
    count = len(plan["cells"])
    where = f"results/{sweep.resolve().name}"
    assert kharness(killed, "status").stdout.splitlines() == [
        f"sweep {where}: not running; resume with: kharness continue {where}",
        f"{count} runs: {count} complete; {5 - count} more trials to be chosen",
    ]
    ended = kharness(killed, "continue")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [
        json.loads((one / "results" / "latest" / "leaderboard.json").read_text())["rows"]
        for one in (whole, killed)
    ]
    assert [row["values"] for row in rows[0]] == [row["values"] for row in rows[1]]


def test_search_whose_space_is_exhausted_proposes_no_more(folder: Path, kharness: Command) -> None:
    printed = "print('step 1: train loss 1, val loss', float('{x}'))"
    words = ["-a", "x=1,2", "--method", "tpe", "--trials", 4, "--", sys.executable, "-c", printed]
    ended = kharness(folder, "sweep", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    sweep = (folder / "results" / "latest").resolve()
    before = json.loads((sweep / "matrix.json").read_text())
    assert ([cell["values"]["X"] for cell in before["cells"]], before["exhausted"]) in (
        (["1", "2"], True),
        (["2", "1"], True),
    )
    again = kharness(folder, "continue")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.splitlines()[0] == f"sweep: 0 trials left in results/{sweep.name}"
    assert json.loads((sweep / "matrix.json").read_text()) == before


def test_directions_of_several_metrics_are_taken(folder: Path, kharness: Command) -> None:
    words = ["sweep", "-a", "x=1,2", "--metric", "wer", "--better", "val/bleu=up", "--better", "wer=down"]
    planned = kharness(folder, *words, "--dry-run", "--", "true", "{x}")
    assert planned.returncode == 0, planned.stderr
    assert "sweep: grid, 2 trials (X=1,2)" in planned.stdout


def test_metric_of_ones_own_is_judged_once_its_direction_is_said(folder: Path, kharness: Command) -> None:
    """Printed beside the loss, so that it is of a step and of no evaluation."""
    program = [sys.executable, "-c", "print('step 3 wer', 0.5 / float('{x}'))"]
    ended = kharness(
        folder, "matrix", "-a", "x=1,2", "-a", "seed=1,2", "--metric", "wer", "--", *program, "{seed}"
    )
    unknown = "which way wer is better is unknown: kharness report --better wer=down, or up"
    assert unknown in ended.stdout, ended.stdout + ended.stderr
    again = kharness(folder, "report", "--better", "wer=down")
    assert again.returncode == 0, again.stderr
    assert unknown not in again.stdout
    words = ["sweep", "-a", "x=1,2", "--metric", "wer", "--better", "wer=down", "--", *program]
    assert kharness(folder, *words).returncode == 0
    board = json.loads((folder / "results" / "latest" / "leaderboard.json").read_text())
    assert [(row["values"]["X"], row["mean"]) for row in board["rows"]] == [("2", 0.25), ("1", 0.5)]


def test_metric_goes_by_the_name_that_the_script_gives_it(folder: Path, kharness: Command) -> None:
    """`loss` is recorded as `train_loss`, `valid_acc` as `val_acc`."""
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+) acc (?P<valid_acc>\S+)"
    print_it = "print('step 3 loss', 0.5 / float('{x}'), 'acc', 0.25 * float('{x}'))"
    program = ["--pattern", pattern, "--", sys.executable, "-c", print_it]
    ended = kharness(folder, "matrix", "-a", "x=1,2", "--metric", "loss", *program)
    assert ended.returncode == 0, ended.stderr
    assert "train loss, last tenth compared with x=1" in ended.stdout
    assert "  x=2  -0.2500" in ended.stdout
    again = kharness(folder, "report", "--metric", "valid_acc", "--better", "valid_acc=up")
    assert "val acc compared with x=1" in again.stdout
    assert "  x=2  +0.2500" in again.stdout
    words = ["sweep", "-a", "x=1,2", "--metric", "valid_acc", "--better", "valid_acc=up", *program]
    searched = kharness(folder, *words)
    assert searched.returncode == 0, searched.stderr
    took = r"  2 runs of this command took [\d. s to]+ each in test_matrix_\w+; a time left is shown"
    assert re.match(took, searched.stdout.splitlines()[2])
    board = json.loads((folder / "results" / "latest" / "leaderboard.json").read_text())
    assert [(row["values"]["X"], row["mean"]) for row in board["rows"]] == [("2", 0.5), ("1", 0.25)]
    refused = kharness(folder, "sweep", "-a", "x=1,2", "--metric", "loss", *program)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error: --metric loss: it is not of the validation set",
    )


@pytest.mark.parametrize(("words", "count"), [((), 3), (("--keep-going",), 5)])
def test_sweep_of_trials_without_what_decides_ends(
    folder: Path, kharness: Command, words: Sequence[str], count: int
) -> None:
    print_it = "print('step 1: loss', float('{x}'))"
    ended = kharness(folder, "sweep", "-a", "x=1..5", *words, "--", sys.executable, "-c", print_it)
    sweep = (folder / "results" / "latest").resolve()
    begun = [f"x-{x}" for x in range(1, 6) if (sweep / f"x-{x}" / "metrics.jsonl").exists()]
    waiting = ["  x-4: pending (and 1 other alike)"] if count == 3 else []
    assert (ended.returncode, begun) == (3, [f"x-{x}" for x in range(1, count + 1)])
    assert ended.stdout.splitlines()[-5 - len(waiting) :] == [
        "not complete, in no row: 5 of 5 trials",
        f"  x-1: no val_loss (and {count - 1} others alike)",
        *waiting,
        "no trial is complete and has val_loss: there is no best one",
        "hint: --metric NAME takes another metric of the validation set that trials have",
        f"leaderboard: results/{sweep.name}/leaderboard.md",
    ]
