"""Several values of a symbol on make's command line are an axis of the matrix."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from kharness.config.assignment import Origin
from kharness.config.errors import KharnessError
from kharness.config.make.variables import known_options, layer
from kharness.config.tree import Tree
from kharness.matrix.planning.axis_values import check_given_axes, given_axes
from kharness.matrix.planning.plan import Plan, draft
from kharness.matrix.planning.settings import with_command_line

from ..conftest import Checkout


@pytest.fixture
def tree(checkout: Checkout) -> Tree:
    return Tree.load(checkout.root)


def drafted(tree: Tree, **variables: str) -> Plan:
    base = tree.assignments("MATRIX_AXES", "OPTIMIZER=sgd|adam SEED=1|2", Origin("preset"))
    given, single = given_axes(tree, variables)
    return draft(tree, base, layer(tree, single), Path("test_matrix_stamp"), given=given)


@pytest.mark.parametrize(
    ("variables", "axes"),
    [
        ({}, "OPTIMIZER=sgd|adam SEED=1|2"),
        ({"CONFIG_SEED": "1..3"}, "OPTIMIZER=sgd|adam SEED=1|2|3"),
        ({"CONFIG_SEED": "1,4..6"}, "OPTIMIZER=sgd|adam SEED=1|4|5|6"),
        ({"CONFIG_SEED": "7"}, "OPTIMIZER=sgd|adam SEED=7"),
        ({"CONFIG_OPTIMIZER": "all", "CONFIG_SEED": "7"}, "OPTIMIZER=adam|sgd SEED=7"),
        (
            {"CONFIG_LEARNING_RATE": "0.1, 0.01"},
            "OPTIMIZER=sgd|adam SEED=1|2 LEARNING_RATE=0.1|0.01",
        ),
        ({"CONFIG_NUM_STEPS": "4"}, "OPTIMIZER=sgd|adam SEED=1|2"),
        ({"TRACKER": "none|trackio,wandb"}, "OPTIMIZER=sgd|adam SEED=1|2 TRACKER=none|trackio,wandb"),
        ({"CONFIG_SEED": "1|3", "CONFIG_MATRIX_AXES": "OPTIMIZER=adam"}, "OPTIMIZER=adam SEED=1|3"),
        ({"CONFIG_SEED": "1..2", "CONFIG_MATRIX_AXES": "SEED=1..2"}, "SEED=1|2"),
    ],
)
def test_they_replace_or_add_that_axis(tree: Tree, variables: dict[str, str], axes: str) -> None:
    found = drafted(tree, **variables)
    assert " ".join(map(str, found.axes)) == axes
    number = 1
    for axis in found.axes:
        number *= len(axis.values)
    assert len(found.cells) == number


def test_a_name_in_another_case_is_said(tree: Tree) -> None:
    found = drafted(tree, CONFIG_OPTIMIZER="SGD,Adam")
    assert [cell.name for cell in found.cells][::2] == ["optimizer-sgd_seed-1", "optimizer-adam_seed-1"]
    assert found.notes == [
        "OPTIMIZER=SGD is taken as OPTIMIZER=sgd",
        "OPTIMIZER=Adam is taken as OPTIMIZER=adam",
    ]


@pytest.mark.parametrize(
    ("variables", "said", "hint"),
    [
        (
            {"CONFIG_SEED": "1..3", "CONFIG_MATRIX_AXES": "SEED=1|2"},
            "SEED=1..3 contradicts the axis SEED=1|2 of MATRIX_AXES",
            "leave one of them out",
        ),
        ({"CONFIG_SEED": "1,,2"}, "SEED=1,,2 has an empty value", "write SEED=1,2"),
        ({"CONFIG_SEED": "1,1"}, "SEED has the value 1 twice", "list it once"),
        (
            {"CONFIG_OPTIMIZER": "sgd,adamx"},
            "OPTIMIZER=adamx is not one of adam, sgd",
            "did you mean adam?",
        ),
        ({"JOBS": "1,2"}, "JOBS=1,2: MATRIX_JOBS=1,2 is not an int", "its value is: int from 0 to 4096"),
    ],
)
def test_what_cannot_be_is_refused(tree: Tree, variables: dict[str, str], said: str, hint: str) -> None:
    with pytest.raises(KharnessError) as caught:
        drafted(tree, **variables)
    assert (str(caught.value), caught.value.hint) == (said, hint)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CONFIG_SEED": "1..3", "CONFIG_MATRIX_AXES": "OPTIMIZER=all augment=@Kconfig"}, ""),
        (
            {"CONFIG_MATRIX_AXES": "OPTIMIZER=all augment=@none.config"},
            "MATRIX_AXES: none.config: no such file or directory; check the path, and that you may read it",
        ),
        ({"CONFIG_MATRIX_AXES": ""}, ""),
        ({"CONFIG_SEED": "3..1"}, "SEED=3..1 is empty; write SEED=1..3"),
        (
            {"CONFIG_OPTIMIZER": "sgd,adamx"},
            "OPTIMIZER=adamx is not one of adam, sgd; did you mean adam?",
        ),
        (
            {"CONFIG_MATRIX_AXES": "OPTIMIZER=adamx"},
            "MATRIX_AXES: OPTIMIZER=adamx is not one of adam, sgd; did you mean adam?",
        ),
    ],
)
def test_make_refuses_it_before_kconfiglib_is_installed(
    checkout: Checkout, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(KharnessError) if said else nullcontext() as caught:
        check_given_axes(known_options(checkout.root, checkout.root), variables, checkout.root)
    assert (f"{caught.value}; {caught.value.hint}" if caught else "") == said


def test_a_matrix_that_has_begun_keeps_its_axes(root: Path) -> None:
    with pytest.raises(KharnessError) as caught:
        with_command_line({}, {"CONFIG_SEED": "1,2", "JOBS": "2"}, root)
    assert str(caught.value) == "SEED=1|2 cannot change a matrix that has begun"
    assert caught.value.hint == (
        "FILTER='SEED=1|2' chooses among its cells; make test_matrix 'SEED=1|2' begins another matrix"
    )
