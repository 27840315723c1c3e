"""A plan records its seeds, so that a later plan with more seeds counts as another look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kharness.config.assignment import Origin
from kharness.config.tree import Tree
from kharness.matrix.planning.plan import Plan, load, prepare
from kharness.runs.status import COMPLETE, RunStatus, write_status

from ..conftest import Checkout


@pytest.fixture
def tree(checkout: Checkout) -> Tree:
    return Tree.load(checkout.root)


def planned(tree: Tree, axes: str, **values: str) -> Plan:
    layer: list[Any] = []
    for name, value in {"MATRIX_AXES": axes, **values}.items():
        layer += tree.assignments(name, value, Origin("make variable", f"{name}={value}"))
    return prepare(tree, tree.root, layer)


def noted(plan: Plan) -> tuple[list[str], int, list[str]]:
    seeds: Any = json.loads((plan.directory / "matrix.json").read_text())["seeds"]
    assert seeds == load(plan.directory, plan.launches[0].root).seeds
    return seeds["first"], seeds["planned"], seeds["earlier"]


TWO = "OPTIMIZER=sgd|adam"


def test_the_first_plan_notes_its_own_seeds(tree: Tree) -> None:
    plan = planned(tree, f"{TWO} SEED=3|1|2", MATRIX_SEEDS_PLANNED="3")
    assert noted(plan) == (["3", "1", "2"], 3, [])
    variants: Any = plan.seeds["variants"]
    assert len(set(variants)) == 2


def test_a_plan_that_adds_seeds_takes_over_how_many_were_planned_first(tree: Tree) -> None:
    first = planned(tree, f"{TWO} SEED=1|2")
    second = planned(tree, f"{TWO} SEED=1..6")
    third = planned(tree, "OPTIMIZER=adam|sgd SEED=1..9", TRACKER="none", MATRIX_JOBS="2")
    names = [first.directory.name, second.directory.name]
    assert noted(second) == (["1", "2"], 0, names[:1])
    assert noted(third) == (["1", "2"], 0, names)


def test_seeds_keep_the_order_in_which_they_were_first_planned(tree: Tree) -> None:
    """Whatever order a later plan lists them in, else a look would have other seeds than it had."""
    orders: list[Any] = [
        planned(tree, f"{TWO} SEED={seeds}").seeds["order"]
        for seeds in ("2|1", "1|2|5|4", "1..6", "6|5|4|3|2|1|7")
    ]
    assert orders == [
        ["2", "1"],
        ["2", "1", "5", "4"],
        ["2", "1", "5", "4", "3", "6"],
        ["2", "1", "5", "4", "3", "6", "7"],
    ]


@pytest.mark.parametrize(
    ("axes", "values"),
    [
        pytest.param(f"{TWO} SEED=3|4", {}, id="other seeds"),
        pytest.param(f"{TWO} SEED=1..4", {"LEARNING_RATE": "0.5"}, id="other options"),
        pytest.param("OPTIMIZER=sgd LEARNING_RATE=0.1|0.2 SEED=1..4", {}, id="other variants"),
    ],
)
def test_another_question_begins_by_itself(tree: Tree, axes: str, values: dict[str, str]) -> None:
    planned(tree, f"{TWO} SEED=1|2")
    plan = planned(tree, axes, **values)
    seeds = list(dict.fromkeys(cell.values["SEED"] for cell in plan.cells))
    assert noted(plan) == (seeds, 0, [])


def test_seeds_that_are_fixed_only_after_a_look_are_not(tree: Tree) -> None:
    first = planned(tree, f"{TWO} SEED=1|2")
    plan = planned(tree, f"{TWO} SEED=1..5", MATRIX_SEEDS_PLANNED="5")
    assert noted(plan) == (["1", "2"], 0, [first.directory.name])
    note = f"MATRIX_SEEDS_PLANNED=5 comes too late: {first.directory.name} requested the same without it"
    has = f"{first.directory} has 4 of these 10 runs already, 0 of them complete"
    assert plan.note_lines() == [
        f"note: {note}, and that counts",
        f"note: {has}: make continue RUN={first.directory} SEED=1..5 trains only the missing; "
        "here all 10 are trained",
    ]


def complete(plan: Plan, *cells: int) -> None:
    for cell in cells:
        write_status(plan.launches[cell].directory, RunStatus(COMPLETE))


def test_runs_that_another_matrix_has_are_named_before_they_are_trained_again(tree: Tree) -> None:
    """The matrix that has most of these runs is named, the newest if several have as many."""
    planned(tree, f"{TWO} SEED=1|2")
    first = planned(tree, f"{TWO} SEED=1|2")
    complete(first, 0, 1, 2)
    where = first.directory
    third = planned(tree, f"{TWO} SEED=1..5")
    assert third.note_lines() == [
        f"note: {where} has 4 of these 10 runs already, 3 of them complete: make continue RUN={where} "
        "SEED=1..5 trains only the missing; here all 10 are trained"
    ]
    complete(third, *range(10))
    assert planned(tree, "OPTIMIZER=sgd SEED=1..6").note_lines() == [
        f"note: {third.directory} has 5 of these 6 runs already, all complete; all 6 are trained here"
    ]


def test_runs_that_are_all_there_are_continued_or_compared(tree: Tree) -> None:
    first = planned(tree, "OPTIMIZER=sgd SEED=1..3")
    where = first.directory
    missing = f"0 of 2 complete: make continue RUN={where} trains only what is missing"
    again = "here all are trained again"
    assert planned(tree, "OPTIMIZER=sgd SEED=3|1").note_lines() == [
        f"note: {where} has these runs already, {missing}; {again}"
    ]
    complete(first, 0, 1, 2)
    third = planned(tree, "OPTIMIZER=sgd SEED=1..3", TRACKER="none")
    compares = f"all complete: make summary RUN={where} compares them"
    assert third.note_lines() == [f"note: {where} has these runs already, {compares}; {again}"]


def test_other_runs_are_not_there(tree: Tree) -> None:
    planned(tree, f"{TWO} SEED=1|2")
    assert planned(tree, f"{TWO} SEED=3|4").note_lines() == []
    assert planned(tree, f"{TWO} SEED=1|2", LEARNING_RATE="0.5").note_lines() == []


def test_seeds_that_were_fixed_first_stay_so(tree: Tree) -> None:
    planned(tree, f"{TWO} SEED=1|2", MATRIX_SEEDS_PLANNED="5")
    assert noted(planned(tree, f"{TWO} SEED=1..5"))[:2] == (["1", "2"], 5)


def test_a_damaged_plan_beside_it_is_no_obstacle(tree: Tree) -> None:
    first = planned(tree, f"{TWO} SEED=1|2")
    for content in ("", "[]", '{"seeds": {}}', '{"seeds": {"first": 1}, "created": "x"}'):
        (first.directory / "matrix.json").write_text(content)
        assert noted(planned(tree, f"{TWO} SEED=1..3"))[0] in (["1", "2"], ["1", "2", "3"])
