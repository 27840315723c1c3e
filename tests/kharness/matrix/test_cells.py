"""Cells against a real option tree."""

from __future__ import annotations

from typing import Any

import pytest

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.matrix.axes import parse_axes
from kharness.matrix.cells import Cell, expand, set_aside
from kharness.matrix.errors import MatrixError


@pytest.fixture
def tree(checkout: Any) -> Tree:
    return Tree.load(checkout.root)


def layer(tree: Tree, **values: str) -> list[Any]:
    origin = lambda name, value: Origin("make variable", f"CONFIG_{name}={value}")  # noqa: E731
    return [a for name, value in values.items() for a in tree.assignments(name, value, origin(name, value))]


def cells_of(tree: Tree, axes: str, base: Any = (), command_line: Any = ()) -> list[Cell]:
    return expand(tree, base, command_line, parse_axes(axes), matrix="stamp")


def refusal(tree: Tree, axes: str, base: Any = (), command_line: Any = ()) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        cells_of(tree, axes, base, command_line)
    assert caught.value.hint
    return str(caught.value).splitlines()


def test_every_combination_is_a_cell_the_last_axis_fastest(tree: Tree) -> None:
    assert [cell.name for cell in cells_of(tree, "OPTIMIZER=sgd|adam SEED=1|2")] == [
        "optimizer-sgd_seed-1",
        "optimizer-sgd_seed-2",
        "optimizer-adam_seed-1",
        "optimizer-adam_seed-2",
    ]


def test_defaults_follow_the_axis(tree: Tree) -> None:
    rates = [cell.resolved.values["LEARNING_RATE"] for cell in cells_of(tree, "OPTIMIZER=sgd|adam")]
    assert rates == [0.1, 0.003]


def test_the_base_and_the_command_line_hold_for_every_cell(tree: Tree) -> None:
    cells = cells_of(tree, "SEED=1|2", layer(tree, NUM_STEPS="7"), layer(tree, LEARNING_RATE="0.5"))
    assert [(c.resolved.values["NUM_STEPS"], c.resolved.values["LEARNING_RATE"]) for c in cells] == [
        (7, 0.5)
    ] * 2


def test_a_run_is_named_for_its_cell_and_matrix_in_the_trackers(tree: Tree) -> None:
    assert [c.resolved.values["TRACKER_RUN_NAME"] for c in cells_of(tree, "SEED=1|2")] == [
        "seed-1_stamp",
        "seed-2_stamp",
    ]


def test_trackers_and_plain_symbols_can_be_axes(tree: Tree) -> None:
    cells = cells_of(tree, "TRACKER=none|trackio,wandb ADAM_BETAS='0.9 0.99' OPTIMIZER=adam")
    assert [(c.name, c.resolved.values["ENABLE_WANDB"]) for c in cells] == [
        ("tracker-none", False),
        ("tracker-trackio,wandb", True),
    ]
    assert cells[0].resolved.values["ADAM_BETAS"] == [0.9, 0.99]


def test_all_values_that_no_cell_can_take_are_listed_at_once(tree: Tree) -> None:
    assert refusal(tree, "OPTIMIZER=sgd|lion SEED=1|x RATE=3") == [
        "3 values of MATRIX_AXES are refused",
        "  OPTIMIZER=lion is not one of adam, sgd (give adam or sgd)",
        "  SEED=x is not an int (its value is: int from 0 to 100)",
        "  RATE=3 is unknown: there is no symbol RATE (`make menuconfig` finds symbols with /)",
    ]


def test_every_refused_cell_is_listed_with_its_reason(tree: Tree) -> None:
    assert refusal(tree, "OPTIMIZER=sgd|adam ADAM_BETAS='0.5 0.5'|'0.9 0.9'") == [
        "2 of 4 cells are refused",
        "  optimizer-sgd_adam-betas-0.5,0.5: ADAM_BETAS='0.5 0.5'|'0.9 0.9': "
        "ADAM_BETAS=0.5 0.5 has no effect: needs OPTIMIZER_ADAM=y, which is n",
        "  optimizer-sgd_adam-betas-0.9,0.9: ADAM_BETAS='0.5 0.5'|'0.9 0.9': "
        "ADAM_BETAS=0.9 0.9 has no effect: needs OPTIMIZER_ADAM=y, which is n",
    ]


def test_a_model_without_a_training_script_is_refused(tree: Tree) -> None:
    assert refusal(tree, "MODEL=pretender|absent") == [
        "1 of 2 cells are refused",
        "  model-absent: MODEL=absent: there is no absent/train.py",
    ]


def test_a_command_line_that_an_axis_would_replace_is_refused(tree: Tree) -> None:
    assert refusal(tree, "OPTIMIZER=sgd|adam", command_line=layer(tree, OPTIMIZER="adam")) == [
        "1 of 2 cells are refused",
        "  optimizer-sgd: CONFIG_OPTIMIZER=adam contradicts the axis OPTIMIZER=sgd|adam",
    ]


def test_a_run_name_for_all_cells_is_refused(tree: Tree) -> None:
    lines = refusal(tree, "SEED=1", command_line=layer(tree, TRACKER_RUN_NAME="mine"))
    assert lines[1] == (
        "  seed-1: CONFIG_TRACKER_RUN_NAME=mine has no effect: a matrix names its runs after their cells"
    )


@pytest.mark.parametrize("symbol", ["MATRIX_AXES", "RESULTS_DIR", "TRACKER_RUN_NAME"])
def test_what_shapes_the_matrix_is_no_axis(tree: Tree, symbol: str) -> None:
    assert refusal(tree, f"{symbol}=a|b")[1].startswith(f"  {symbol} cannot be an axis: ")


def test_two_axes_for_one_choice_contradict_each_other(tree: Tree) -> None:
    lines = refusal(tree, "OPTIMIZER=adam OPTIMIZER_SGD=y")
    assert lines[0] == "1 of 1 cells are refused"
    assert "contradicts" in lines[1]


def test_cells_that_come_to_the_same_are_refused(tree: Tree) -> None:
    assert refusal(tree, "LEARNING_RATE=0.1|1e-1") == [
        "cells learning-rate-0.1 and learning-rate-1e-1 have the same configuration"
    ]


def test_what_does_not_apply_to_some_cells_is_told(tree: Tree) -> None:
    base = layer(tree, OPTIMIZER="adam", ADAM_BETAS="0.5 0.5")
    cells = cells_of(tree, "OPTIMIZER=sgd|adam SEED=1|2", base)
    assert [(str(assignment), count) for assignment, count in set_aside(tree, cells)] == [
        ("ADAM_BETAS=0.5 0.5", 2)
    ]
