"""A report opens with its title, the verdict, the next command, and the setups compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kharness.report.overview.compared import compared
from kharness.report.overview.headline import headline
from kharness.report.paper.appendix import bibliography
from kharness.report.plots.verdict_rows import verdict_picture
from kharness.report.summary import Summary, collect

from .conftest import Make

START = {
    "event": "start",
    "num_steps": 2,
    "batch_size": 10,
    "data_sha256": "ab" * 32,
    "dataset": {"name": "mnist-subset", "train": 20, "test": 10_000},
    "model": {"name": "LeNet5", "parameters": 61706},
    "schedule": {"name": "cosine", "peak": 0.1, "num_steps": 2, "warmup_fraction": 0.25},
}
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    "adamw": {"learning_rate": 0.003, "betas": [0.9, 0.999], "weight_decay": 0.01, "groups": [{}]},
}


def compared_optimizers(folder: Path, make: Make, scores: Mapping[str, list[float]]) -> Summary:
    """A matrix of both optimizers, with a test accuracy for each seed."""
    seeds = [str(seed) for seed in range(1, len(scores["sgd"]) + 1)]
    made = make.matrix(folder, {"OPTIMIZER": [*scores], "SEED": seeds})
    for name, of in scores.items():
        for seed, score in zip(seeds, of, strict=True):
            start = {**START, "optimizer": {"name": name, **OPTIMIZERS[name]}}
            start["config"] = {"MODEL": "lenet5", "SEED": int(seed), "BATCH_SIZE": 10}
            records = make.training([2.0, 1.0], [score], score)
            made.add({"OPTIMIZER": name, "SEED": seed}, [start, *records[1:]])
    return collect(made.directory)


def test_a_clear_winner_is_the_first_sentence(tmp_path: Path, make: Make) -> None:
    summary = compared_optimizers(
        tmp_path / "m",
        make,
        {"sgd": [0.50, 0.51, 0.49, 0.50, 0.505], "adamw": [0.90, 0.905, 0.91, 0.90, 0.90]},
    )
    found = headline(summary)
    assert found.title == "LeNet-5 on MNIST (subset): sgd, adamw; 5 seeds each"
    assert found.verdict.startswith("adamw is better than sgd in test accuracy: +40.20 (+3")
    assert found.verdict.endswith(") points.")
    assert (found.shown, found.next_runs) == ([], [])
    picture = verdict_picture(summary.conclusions)
    assert picture is not None
    row = picture.rows[0]
    zero, bar, dot = row.marks
    assert (row.name, row.verdict, [mark.look for mark in row.marks]) == (
        "adamw",
        "better",
        ["zero", "bar", "dot"],
    )
    assert zero.left < bar.left < dot.left < bar.left + bar.width < 100
    assert picture.caption == "difference from sgd in test accuracy, in points; right is better"


def test_an_interval_beside_its_difference_is_drawn_as_a_whole(tmp_path: Path, make: Make) -> None:
    """Five seeds are 40 points better and five more are equal: ten differ by 20, the first five's interval
    stays.
    """
    sgd = [0.50, 0.51, 0.49, 0.50, 0.505] * 2
    adamw = [0.90, 0.905, 0.89, 0.90, 0.91, *sgd[5:]]
    whole = compared_optimizers(tmp_path / "m", make, {"sgd": sgd, "adamw": adamw})
    place = whole.directory / "matrix.json"
    plan = json.loads(place.read_text())
    place.write_text(json.dumps({**plan, "seeds": {"first": ["1", "2", "3", "4", "5"], "planned": 0}}))
    summary = collect(whole.directory)
    picture = verdict_picture(summary.conclusions)
    assert picture is not None
    row = picture.rows[0]
    assert row.words.startswith("+20.00 (+3")
    zero, bar, dot = row.marks
    assert zero.left < dot.left < bar.left < bar.left + bar.width < 100
    assert [mark.look for mark in row.marks] == ["zero", "bar", "dot"]
    assert "howard2021" in bibliography(summary)


def test_a_variant_that_has_not_begun_is_of_the_same_workload(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adamw"], "SEED": ["1"]})
    start = {**START, "config": {"MODEL": "lenet5"}}
    made.add({"OPTIMIZER": "sgd", "SEED": "1"}, [start, *make.training([2.0, 1.0], [0.5], 0.5)[1:]])
    made.plan({"OPTIMIZER": "adamw", "SEED": "1"})
    assert headline(collect(made.directory)).title == "LeNet-5 on MNIST (subset): sgd, adamw; 1 seed each"


def test_an_open_question_comes_with_what_seeds_could_show_and_the_next_command(
    tmp_path: Path, make: Make
) -> None:
    summary = compared_optimizers(
        tmp_path / "m", make, {"sgd": [0.5, 0.6, 0.4, 0.55, 0.5], "adamw": [0.55, 0.5, 0.45, 0.6, 0.4]}
    )
    found = headline(summary)
    assert found.verdict == "No difference in test accuracy is shown between sgd and adamw."
    assert found.shown[0].startswith("These seeds find a true difference of ")
    assert found.shown[0].endswith(
        " points or more in 80 % of all cases. A smaller one may be there and is not shown."
    )
    assert found.shown[1:] == ["adamw: it is within chance."]
    assert [(one.words, one.command) for one in found.next_runs] == [
        (
            "The next verdicts are given at 10 seeds. To train them",
            "make test_matrix 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1..10'",
        )
    ]


def test_two_seeds_are_too_few_and_the_command_adds_the_rest(tmp_path: Path, make: Make) -> None:
    summary = compared_optimizers(tmp_path / "m", make, {"sgd": [0.5, 0.6], "adamw": [0.55, 0.5]})
    origins = {
        "asked": [
            {"symbol": "NUM_EPOCHS", "value": "3", "kind": "make variable", "where": "NUM_EPOCHS=3"},
            {"symbol": "SEED", "value": "1", "kind": "matrix axis", "where": "SEED=1..2"},
        ],
        "written": {"NUM_EPOCHS": "3", "MATRIX_AXES": '"OPTIMIZER=sgd|adamw SEED=1..3"'},
    }
    (summary.run_directories[0] / ".config.origins.json").write_text(json.dumps(origins))
    found = headline(summary)
    assert found.verdict == (
        "Too few seeds to compare adamw with sgd in test accuracy: 2 of the 5 that a verdict takes."
    )
    assert [one.command for one in found.next_runs] == ["make test_matrix NUM_EPOCHS=3 SEED=1..5"]


def test_variants_without_a_verdict_are_told_apart_by_the_reason(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"LEARNING_RATE": ["1", "2", "3", "4"], "SEED": ["1", "2"]})
    for rate, steps in (("1", 2), ("2", 2), ("3", 3), ("4", 4)):
        for seed in ("1", "2"):
            made.add({"LEARNING_RATE": rate, "SEED": seed}, make.training([2.0] * steps, [0.5], 0.5))
    assert headline(collect(made.directory)).verdict == (
        "Too few seeds to compare learning_rate=2 with learning_rate=1 in test accuracy: 2 of the 5 that a "
        "verdict takes; no verdict on learning_rate=3 and learning_rate=4: budgets differ."
    )


def test_a_cell_is_trained_again_as_this_variant_and_a_matrix_by_its_own_axes(
    tmp_path: Path, make: Make
) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "muon"], "SEED": ["1", "2"]})
    for seed in ("1", "2"):
        for name in ("sgd", "muon"):
            run = made.add({"OPTIMIZER": name, "SEED": seed}, make.training([2.0, 1.0], [0.5], 0.5))
            origins = {
                "asked": [
                    {"symbol": "LEARNING_RATE", "value": "0.1", "kind": "config file", "where": ".config:9"},
                    {
                        "symbol": "NUM_EPOCHS",
                        "value": "3",
                        "kind": "make variable",
                        "where": "CONFIG_NUM_EPOCHS=3",
                    },
                    {
                        "symbol": f"OPTIMIZER_{name.upper()}",
                        "value": "y",
                        "kind": "matrix axis",
                        "where": "OPTIMIZER=sgd|muon",
                    },
                    {"symbol": "SEED", "value": seed, "kind": "matrix axis", "where": "SEED=1..2"},
                ],
                "written": {
                    "OPTIMIZER": f'"{name}"',
                    "MATRIX_AXES": '"OPTIMIZER=sgd|adamw SEED=1..5"',
                },
            }
            (run / ".config.origins.json").write_text(json.dumps(origins))
            journal = run / "metrics.jsonl"
            journal.write_text(journal.read_text().replace('{"SEED": 1}', '{"SEED": 1, "MODEL": "lenet5"}'))
    assert [(one.words, one.command) for one in headline(collect(run)).next_runs] == [
        (
            "One run cannot tell a difference from chance. To train it with 5 seeds",
            "make test_matrix CONFIG_LEARNING_RATE=0.1 CONFIG_NUM_EPOCHS=3 CONFIG_OPTIMIZER=muon "
            "CONFIG_MATRIX_AXES=SEED=1..5",
        )
    ]
    (found,) = headline(collect(made.directory)).next_runs
    assert found.command == (
        "make test_matrix CONFIG_NUM_EPOCHS=3 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|muon SEED=1..5'"
    )


def test_a_run_alone_says_all_that_its_optimizer_was_set_to(tmp_path: Path, make: Make) -> None:
    summary = compared_optimizers(tmp_path / "m", make, {"sgd": [0.5], "adamw": [0.9]})
    options = compared(collect(summary.run_directories[0])).options
    assert options is not None
    assert dict(zip(options.header, options.rows[0], strict=True)) == {
        "run": "optimizer-sgd_seed-1",
        "learning rate": "0.05",
        "weight decay": "0.0005",
        "schedule": "cosine, warmup fraction 0.25",
        "optimizer": "sgd",
        "other settings": "momentum 0.9, nesterov",
    }


def test_what_was_compared_has_what_each_optimizer_was_set_to(tmp_path: Path, make: Make) -> None:
    summary = compared_optimizers(tmp_path / "m", make, {"sgd": [0.5], "adamw": [0.55]})
    run = {
        "run_id": "0",
        "created": 1.0,
        "tracking": {"project": "p", "name": "n", "group": None},
        "config": {},
        "attempts": [
            {
                "attempt": 1,
                "host": "lab",
                "hardware": {"cpu": "A CPU", "cpu_usable": 2, "memory_bytes": 8_000_000_000, "gpus": []},
                "versions": {"torch": "2.13.0"},
            }
        ],
    }
    (summary.run_directories[0] / "run.json").write_text(json.dumps(run))
    found = compared(summary)
    assert found.options is not None
    assert [found.options.header, *found.options.rows] == [
        ["variant", "learning rate", "weight decay", "betas", "schedule", "other settings"],
        ["sgd", "0.05", "0.0005", "-", "cosine, warmup fraction 0.25", "momentum 0.9, nesterov"],
        ["adamw", "0.003", "0.01", "0.9 0.999", "cosine, warmup fraction 0.25", "-"],
    ]
    assert found.facts == {
        "model": "LeNet-5, 61,706 parameters",
        "optimizer": "sgd, adamw",
        "seed": "1",
        "dataset": "MNIST (subset): 20 train, 10,000 test; sha256 abababababababab",
        "budget of a run": "2 steps, 20 samples, 2.0 s",
        "hardware": "A CPU, 2 processors, 8 GB of memory, no GPU",
        "host": "lab",
        "versions": "torch 2.13.0",
        "code": "0123abcd, with uncommitted changes fedcba987654",
        "command": "make test_matrix 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1'",
        "begun": "2026-11-21 11:53:22 UTC",
        "alerts": "none",
    }
    assert found.untuned.startswith(
        "Learning rates were not tuned in this matrix: sgd at 0.05 and adamw at 0.003 ran at one rate each."
    )
    assert found.tuning.endswith("make sweep RANGE_CONFIG=rates.ranges")
