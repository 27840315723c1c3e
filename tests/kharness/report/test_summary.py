"""Means and deviations computed from run directories equal those worked by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kharness.report.collection import Statistic, variant_label, variant_labels
from kharness.report.comparison_table import comparison
from kharness.report.errors import ReportError
from kharness.report.metrics import METRICS
from kharness.report.report import report_lines
from kharness.report.summary import collect

from .conftest import Make, MatrixDirectory

METRIC = {metric.name: metric for metric in METRICS}


def test_mean_and_sample_deviation_over_seeds(matrix: MatrixDirectory) -> None:
    sgd, adam = collect(matrix.directory).variants
    assert (sgd.label, adam.label) == ("sgd", "adam")
    assert sgd.statistic(METRIC["test_accuracy"]) == Statistic(2, 0.75, 0.125**0.5)
    assert sgd.statistic(METRIC["val_accuracy"]) == Statistic(2, 0.5, 0.125**0.5)
    assert sgd.statistic(METRIC["best_val_loss"]) == Statistic(2, 0.5, 0.125**0.5)
    assert sgd.statistic(METRIC["sec_per_step"]) == Statistic(2, 0.025, 0.0)


def test_one_complete_run_has_no_deviation(matrix: MatrixDirectory) -> None:
    adam = collect(matrix.directory).variants[1]
    assert adam.statistic(METRIC["test_accuracy"]) == Statistic(1, 0.75, None)


def test_a_failed_run_counts_in_no_mean_and_is_not_forgotten(matrix: MatrixDirectory) -> None:
    summary = collect(matrix.directory)
    assert [(c.name, c.run.status, c.run.reason) for c in summary.incomplete] == [
        ("optimizer-adam_seed-2", "failed", "exit code 1")
    ]
    assert summary.variants[1].statistic(METRIC["sec_per_step"]).n == 1


def test_a_cell_whose_directory_is_gone_is_missing(matrix: MatrixDirectory) -> None:
    shutil.rmtree(matrix.directory / "optimizer-sgd_seed-2")
    summary = collect(matrix.directory)
    assert [c.run.status for c in summary.cells] == ["complete", "missing", "complete", "failed"]


def test_a_metric_that_no_run_has_is_null_not_zero(matrix: MatrixDirectory) -> None:
    sgd = collect(matrix.directory).variants[0]
    assert sgd.statistic(METRIC["sparsity"]) == Statistic(0, None, None)


def test_axes_without_a_seed_make_one_variant_a_cell(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"BATCH_SIZE": ["16", "32"], "DEVICE": ["cpu"]})
    for size in ("16", "32"):
        made.add({"BATCH_SIZE": size, "DEVICE": "cpu"}, make.training([1.0], [0.5], 0.5))
    assert [v.label for v in collect(made.directory).variants] == ["batch_size=16", "batch_size=32"]


def test_seeds_alone_are_one_variant_named_for_the_model(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2"]})
    for seed in ("1", "2"):
        made.add({"SEED": seed}, make.training([1.0], [0.5], 0.5))
    assert [(v.label, len(v.cells)) for v in collect(made.directory).variants] == [("lenet5", 2)]


def test_labels_name_numbers_and_switches() -> None:
    values = {"OPTIMIZER": "sgd", "LEARNING_RATE": "0.1", "CHANNELS_LAST": "y", "SEED": "1"}
    assert (
        variant_label(values, ["OPTIMIZER", "LEARNING_RATE", "CHANNELS_LAST"])
        == "sgd, learning_rate=0.1, channels_last=y"
    )
    assert variant_label({"PRUNING": "none"}, ["PRUNING", "PRUNING_SPARSITY"]) == "none"


PARTS = {f"GPT2_{part}": ["y", "n"] for part in ("BIAS", "QK_NORM", "ROTARY", "TIED")}


def test_settings_that_are_changed_one_at_a_time_make_short_labels(tmp_path: Path, make: Make) -> None:
    """Axes come from MATRIX_INCLUDE alone, so a variant is named for what differs from the first one."""
    recipes = {"GPT2_RECIPE": ["modern", "gpt2"], "OPTIMIZER": ["muon", "adamw"]}
    made = make.matrix(tmp_path / "m", {**recipes, **PARTS}, included=["OPTIMIZER", *PARTS])
    usual = {"GPT2_RECIPE": "modern", "OPTIMIZER": "muon", **dict.fromkeys(PARTS, "y")}
    plain = {"GPT2_RECIPE": "gpt2", "OPTIMIZER": "adamw", **dict.fromkeys(PARTS, "n")}
    lacking = {symbol: value for symbol, value in usual.items() if symbol != "GPT2_TIED"}
    for values in (usual, {**usual, "GPT2_ROTARY": "n"}, {**usual, "OPTIMIZER": "adamw"}, plain):
        made.add(values, make.training([1.0], [0.5], 0.5))
    summary = collect(made.directory)
    labels = ["modern", "modern, gpt2_rotary=n", "modern, adamw"]
    assert [it.label for it in summary.variants] == [
        *labels,
        "gpt2, adamw, gpt2_bias=n, gpt2_qk_norm=n, gpt2_rotary=n, …",
    ]
    table = comparison(summary)
    assert (table.header[:2], [row[0] for row in table.rows]) == (
        ["variant", "n"],
        [it.label for it in summary.variants],
    )
    assert summary.conclusions.baseline == "modern"
    # labels that are no names of one variant are written out
    made.add(lacking, make.training([1.0], [0.5], 0.5))
    assert collect(made.directory).variants[0].label == (
        "modern, muon, gpt2_bias=y, gpt2_qk_norm=y, gpt2_rotary=y, gpt2_tied=y"
    )


def test_the_variant_that_others_change_is_named_for_the_axes_of_the_matrix() -> None:
    axes = {"OPTIMIZER": ["adamw"], "SEED": ["1", "2"], "WEIGHT_DECAY": ["0.01", "0"], "BATCH": ["64", "128"]}
    usual = {"OPTIMIZER": "adamw", "WEIGHT_DECAY": "0.01", "BATCH": "64"}
    variants = [usual, {**usual, "WEIGHT_DECAY": "0"}, {**usual, "BATCH": "128"}]
    included = ["WEIGHT_DECAY", "BATCH"]
    assert variant_labels(variants, axes, included) == ["adamw", "weight_decay=0", "batch=128"]
    assert variant_labels(variants, axes, ["OPTIMIZER", *included]) == ["", "weight_decay=0", "batch=128"]
    assert variant_labels(variants, axes) == [
        *("weight_decay=0.01, batch=64", "weight_decay=0, batch=64", "weight_decay=0.01, batch=128"),
    ]


def test_a_single_run_is_a_summary_of_one(tmp_path: Path, make: Make) -> None:
    make.journal(tmp_path / "lenet5_run", make.training([1.0], [0.5], 0.5))
    make.status(tmp_path / "lenet5_run", "complete", None)
    summary = collect(tmp_path / "lenet5_run")
    assert [(v.label, len(v.complete)) for v in summary.variants] == [("lenet5_run", 1)]


def test_a_link_to_a_matrix_is_the_matrix(matrix: MatrixDirectory) -> None:
    link = matrix.directory.parent / "latest"
    link.symlink_to(matrix.directory.name)
    assert collect(link) == collect(matrix.directory)


def test_a_directory_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError) as caught:
        collect(tmp_path)
    assert str(caught.value) == f"{tmp_path} holds neither a matrix (matrix.json) nor a run (metrics.jsonl)"
    assert caught.value.hint == "name one: RUN=results/latest, or RUN=results/latest/CELL"


@pytest.mark.parametrize("text", ['{"model": "lenet5"}', "{", "[]", '{"model": 1, "axes": 1, "cells": 2}'])
def test_a_plan_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "matrix.json").write_text(text)
    with pytest.raises(ReportError, match="is not the plan of a matrix"):
        collect(tmp_path)


@pytest.mark.parametrize(
    ("planned", "shown"),
    [
        (5, [f"  optimizer-sgd_seed-{seed}: pending" for seed in range(3, 8)]),
        (6, ["  and 6 runs: pending"]),
    ],
)
def test_many_runs_that_never_began_are_a_number(
    matrix: MatrixDirectory, planned: int, shown: list[str]
) -> None:
    for seed in range(3, 3 + planned):
        matrix.add({"OPTIMIZER": "sgd", "SEED": str(seed)}, [], status="pending")
    lines = report_lines(collect(matrix.directory))
    begin = lines.index(f"not complete, in no mean: {planned + 1} of {planned + 4}")
    assert lines[begin + 1 : begin + 2 + len(shown)] == [
        "  optimizer-adam_seed-2: failed (exit code 1)",
        *shown,
    ]
