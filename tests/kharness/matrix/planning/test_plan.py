"""Plans: written whole, read back, and safe from whatever is edited later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kharness.config.assignment import Layer, Origin
from kharness.config.generate import config_py
from kharness.config.tree import Tree
from kharness.matrix.planning.axes import Axis
from kharness.matrix.planning.axis_values import Fragment
from kharness.matrix.planning.cells import Refused
from kharness.matrix.planning.filter import parse_filter
from kharness.matrix.planning.plan import Plan, load, prepare
from kharness.runs.errors import MatrixError

from ..conftest import Checkout


@pytest.fixture
def tree(checkout: Checkout) -> Tree:
    return Tree.load(checkout.root)


def planned(tree: Tree, *, chosen: str = "", **values: str) -> Plan:
    layer: list[Any] = []
    for name, value in values.items():
        layer += tree.assignments(name, value, Origin("make variable", f"{name}={value}"))
    return prepare(tree, tree.root, layer, chosen=parse_filter(chosen) if chosen else None)


def test_a_plan_is_read_back_as_it_was_written(tree: Tree) -> None:
    (tree.root / "hot.config").write_text('CONFIG_LEARNING_RATE="0.5"\n')
    (tree.root / "known.txt").write_text("*seed-2  # diverges\n")
    plan = planned(
        tree,
        MATRIX_AXES="OPTIMIZER=sgd|adam recipe=@hot.config ADAM_BETAS='0.9 0.9' SEED=1|2",
        MATRIX_SKIP_REFUSED="y",
        MATRIX_QUARANTINE="known.txt",
        MATRIX_JOBS="2",
    )
    (tree.root / "hot.config").write_text("")
    (tree.root / "known.txt").write_text("")
    again = load(plan.directory, tree.root)
    assert (again.kind, again.settings["MATRIX_JOBS"], again.settings["LAUNCHER"]) == ("matrix", 2, "local")
    assert again.axes[:2] == [Axis("OPTIMIZER", ["sgd", "adam"]), Axis("recipe", ["hot"])]
    assert again.fragments == {"recipe": [Fragment("hot", "hot.config", 'CONFIG_LEARNING_RATE="0.5"\n')]}
    assert again.quarantine == {"optimizer-adam_seed-2": "diverges"}
    values = {"OPTIMIZER": "adam", "recipe": "hot", "ADAM_BETAS": "0.9 0.9", "SEED": "1"}
    assert [(c.name, c.model, c.values) for c in again.cells] == [
        ("optimizer-adam_seed-1", "pretender", values),
        ("optimizer-adam_seed-2", "pretender", {**values, "SEED": "2"}),
    ]
    assert again.refused == [Refused(one.name, one.values, one.reason) for one in plan.refused]
    assert [one.name for one in again.refused] == ["optimizer-sgd_seed-1", "optimizer-sgd_seed-2"]


def test_launches_of_a_plan_read_back_ask_for_what_its_cells_were_planned_with(tree: Tree) -> None:
    plan = planned(tree, MATRIX_AXES="OPTIMIZER=sgd|adam")
    (tree.root / ".config").write_text("CONFIG_NUM_STEPS=99\n")
    for before, after in zip(plan.launches, load(plan.directory, tree.root).launches, strict=True):
        asked = {**before.asked, "TRACKER_PROJECT": after.asked["TRACKER_PROJECT"]}
        assert dict(after.asked) == asked
        assert (after.name, after.directory, after.command) == (before.name, before.directory, before.command)


def test_every_cell_has_its_own_whole_configuration(tree: Tree) -> None:
    plan = planned(tree, MATRIX_AXES="OPTIMIZER=sgd|adam", NUM_STEPS="7")
    for cell in plan.cells:
        run = plan.directory / cell.name
        assert sorted(path.name for path in run.iterdir()) == [
            ".config",
            ".config.origins.json",
            "config.py",
            "status.json",
        ]
        assert cell.resolved is not None
        assert (run / ".config").read_text() == cell.resolved.text
        assert (run / "config.py").read_text() == config_py(cell.resolved, tree.root)
        assert json.loads((run / "status.json").read_text()) == {"status": "pending", "attempts": []}
        values = tree.resolve(tree.base(run)).values
        assert (values["NUM_STEPS"], values["OPTIMIZER"]) == (7, cell.values["OPTIMIZER"])


def test_only_the_cells_that_a_filter_means_are_planned(tree: Tree) -> None:
    plan = planned(tree, MATRIX_AXES="OPTIMIZER=sgd|adam SEED=1|2", chosen="OPTIMIZER=adam SEED=2")
    assert [cell.name for cell in plan.cells] == ["optimizer-adam_seed-2"]
    assert [path.name for path in plan.directory.iterdir() if path.is_dir()] == ["optimizer-adam_seed-2"]
    assert load(plan.directory, tree.root).chosen == "OPTIMIZER=adam SEED=2"


def test_a_filter_passes_over_refused_cells_that_it_does_not_mean(tree: Tree) -> None:
    axes = "OPTIMIZER=sgd|adam ADAM_BETAS='0.9 0.9' SEED=1|2"
    with pytest.raises(MatrixError, match=r"^2 of 4 cells are refused"):
        planned(tree, MATRIX_AXES=axes)
    plan = planned(tree, MATRIX_AXES=axes, chosen="OPTIMIZER=adam")
    assert [cell.name for cell in plan.cells] == ["optimizer-adam_seed-1", "optimizer-adam_seed-2"]


def test_nothing_is_made_if_the_filter_matches_nothing(tree: Tree) -> None:
    with pytest.raises(MatrixError, match=r"^FILTER=SEED=3 matches none of 2 cells$"):
        planned(tree, MATRIX_AXES="SEED=1|2", chosen="SEED=3")
    assert not (tree.root / "results").exists()
    assert not (tree.root / ".config").exists()


def test_two_plans_of_one_second_have_two_directories(tree: Tree) -> None:
    layer: Layer = tree.assignments("MATRIX_AXES", "SEED=1", Origin("make variable"))
    directories = {prepare(tree, tree.root, layer).directory for _ in range(3)}
    assert len(directories) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not the plan of a matrix: Input is a zero-length, empty document: line 1 column 1 (char 0)"),
        ("[]", "is not the plan of a matrix: it is not a JSON object"),
        ('{"format": 3}', "has format 3, which this checkout does not know"),
        ('{"format": 1}', "has format 1, which this checkout does not know"),
        ('{"created": 1}', "is not the plan of a matrix: format is missing"),
        ('{"format": 2}', "is not the plan of a matrix: kind is missing"),
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "matrix.json").write_text(text)
    with pytest.raises(MatrixError) as caught:
        load(tmp_path, tmp_path)
    assert str(caught.value) == f"{tmp_path / 'matrix.json'} {message}"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"name": "../x", "values": {}, "model": ""}, "'../x' is not the name of a cell"),
        ({"name": ".", "values": {}, "model": ""}, "'.' is not the name of a cell"),
        ({"name": "x", "values": [], "model": "m"}, "cells[0].values is a list, not an object"),
    ],
)
def test_a_cell_that_cannot_be_one_is_refused(tree: Tree, cell: dict[str, Any], message: str) -> None:
    path = planned(tree, MATRIX_AXES="SEED=1").directory / "matrix.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cells": [cell]}))
    with pytest.raises(MatrixError) as caught:
        load(path.parent, tree.root)
    assert str(caught.value) == f"{path} is not the plan of a matrix: {message}"


def test_a_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"holds no matrix\.json$"):
        load(tmp_path, tmp_path)
