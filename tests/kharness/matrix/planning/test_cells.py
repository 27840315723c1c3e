"""Cells against a real option tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kharness.config.assignment import Assignment, Layer, Origin
from kharness.config.tree import Tree
from kharness.config.values import Value
from kharness.matrix.planning.cells import Cell
from kharness.matrix.planning.plan import Plan, draft
from kharness.runs.errors import MatrixError

from ..conftest import Checkout


@pytest.fixture
def tree(checkout: Checkout) -> Tree:
    return Tree.load(checkout.root)


def layer(tree: Tree, **values: str) -> list[Assignment]:
    def assigned(name: str, value: str) -> Layer:
        return tree.assignments(name, value, Origin("make variable", f"CONFIG_{name}={value}"))

    return [assignment for name, value in values.items() for assignment in assigned(name, value)]


def drafted(tree: Tree, axes: str, base: Layer = (), command_line: Layer = (), **settings: str) -> Plan:
    asked = layer(tree, MATRIX_AXES=axes, **{f"MATRIX_{name.upper()}": v for name, v in settings.items()})
    return draft(tree, [*base, *asked], command_line, Path("test_matrix_stamp"))


def cells_of(
    tree: Tree, axes: str, base: Layer = (), command_line: Layer = (), **settings: str
) -> Sequence[Cell]:
    return drafted(tree, axes, base, command_line, **settings).cells


def values_of(cell: Cell) -> Mapping[str, Value]:
    assert cell.resolved is not None
    return cell.resolved.values


def names_of(tree: Tree, axes: str, **settings: str) -> list[str]:
    return [cell.name for cell in cells_of(tree, axes, (), (), **settings)]


def refusal(tree: Tree, axes: str, base: Layer = (), command_line: Layer = (), **settings: str) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        cells_of(tree, axes, base, command_line, **settings)
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
    rates = [values_of(cell)["LEARNING_RATE"] for cell in cells_of(tree, "OPTIMIZER=sgd|adam")]
    assert rates == [0.1, 0.003]


def test_the_base_and_the_command_line_hold_for_every_cell(tree: Tree) -> None:
    cells = cells_of(tree, "SEED=1|2", layer(tree, NUM_STEPS="7"), layer(tree, LEARNING_RATE="0.5"))
    values = [values_of(cell) for cell in cells]
    assert [(one["NUM_STEPS"], one["LEARNING_RATE"]) for one in values] == [(7, 0.5)] * 2


def test_a_run_is_named_for_its_cell_and_matrix_in_the_trackers(tree: Tree) -> None:
    assert [values_of(cell)["TRACKER_RUN_NAME"] for cell in cells_of(tree, "SEED=1|2")] == [
        "seed-1_stamp",
        "seed-2_stamp",
    ]


def test_trackers_and_plain_symbols_can_be_axes(tree: Tree) -> None:
    cells = cells_of(tree, "TRACKER=none|trackio,wandb ADAM_BETAS='0.9 0.99' OPTIMIZER=adam")
    assert [(cell.name, values_of(cell)["ENABLE_WANDB"]) for cell in cells] == [
        ("tracker-none", False),
        ("tracker-trackio,wandb", True),
    ]
    assert values_of(cells[0])["ADAM_BETAS"] == [0.9, 0.99]


def test_all_values_that_no_cell_can_take_are_listed_at_once(tree: Tree) -> None:
    assert refusal(tree, "OPTIMIZER=sgd|lion SEED=1|x RATE=3") == [
        "3 values of MATRIX_AXES are refused",
        "  OPTIMIZER=lion is not one of adam, sgd (see `make configwhy SYMBOL=OPTIMIZER`)",
        "  SEED=x is not an int (its value is: int from 0 to 100)",
        "  RATE=3: unknown symbol (`make menuconfig` finds symbols with /)",
    ]


@pytest.mark.parametrize(
    ("axis", "what", "meant"),
    [
        ("OPTIMIZER=sgd,adam", "OPTIMIZER=sgd,adam is not one of adam, sgd", "OPTIMIZER=sgd|adam"),
        ("SEED=1,2", "SEED=1,2 is not an int", "SEED=1|2"),
        ("SEED=1-5", "SEED=1-5 is not an int", "SEED=1..5"),
    ],
)
def test_several_values_written_otherwise_are_answered_with_bars(
    tree: Tree, axis: str, what: str, meant: str
) -> None:
    with pytest.raises(MatrixError) as caught:
        cells_of(tree, axis)
    assert (str(caught.value), caught.value.hint) == (f"MATRIX_AXES: {what}", f"write {meant}")


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
    assert refusal(tree, f"{symbol}=a|b")[0].startswith(f"MATRIX_AXES: {symbol} cannot be an axis: ")


def test_of_many_refused_values_the_first_are_listed(tree: Tree) -> None:
    lines = refusal(tree, "SEED=" + "|".join(f"x{number}" for number in range(50)))
    assert (len(lines), lines[0], lines[-1]) == (
        22,
        "50 values of MATRIX_AXES are refused",
        "  … and 30 more",
    )


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
    assert drafted(tree, "OPTIMIZER=sgd|adam SEED=1|2", base).notes == [
        "ADAM_BETAS=0.5 0.5 (CONFIG_ADAM_BETAS=0.5 0.5) does not apply to 2 of the runs"
    ]


def test_all_and_ranges_are_written_out(tree: Tree) -> None:
    found = drafted(tree, "OPTIMIZER=all SEED=9..11|20")
    assert [(axis.symbol, axis.values) for axis in found.axes] == [
        ("OPTIMIZER", ["adam", "sgd"]),
        ("SEED", ["9", "10", "11", "20"]),
    ]
    assert len(found.cells) == 8


def test_a_range_for_what_is_no_whole_number_is_refused(tree: Tree) -> None:
    assert refusal(tree, "LEARNING_RATE=1..3 SEED=3..1 NUM_STEPS=0..10000") == [
        "3 values of MATRIX_AXES are refused",
        "  LEARNING_RATE=1..3 is not a float (its value is: float, 0 < x)",
        "  SEED=3..1 is empty (write SEED=1..3)",
        "  NUM_STEPS=0..10000 is 10001 values (at most 10000 are taken)",
    ]


def test_a_matrix_too_large_for_anybody_is_refused(tree: Tree) -> None:
    assert refusal(tree, "SEED=0..100 NUM_STEPS=1..1000") == ["the axes have 101000 combinations"]


def test_a_fragment_is_an_axis_value(tree: Tree) -> None:
    folder = tree.root / "fragments"
    folder.mkdir()
    (folder / "plain.config").write_text("")
    (folder / "hot.config").write_text('# as in the paper\nCONFIG_LEARNING_RATE="0.5"\nCONFIG_NUM_STEPS=9\n')
    found = drafted(tree, "recipe=@fragments/plain.config|@fragments/hot.config SEED=1|2")
    rates = [
        (c.name, c.values["recipe"], c.resolved.values["LEARNING_RATE"]) for c in found.cells if c.resolved
    ]
    assert rates == [
        ("recipe-plain_seed-1", "plain", 0.1),
        ("recipe-plain_seed-2", "plain", 0.1),
        ("recipe-hot_seed-1", "hot", 0.5),
        ("recipe-hot_seed-2", "hot", 0.5),
    ]
    (folder / "hot.config").write_text("")
    assert [(one.file, one.text[:10]) for one in found.fragments["recipe"]] == [
        ("fragments/plain.config", ""),
        ("fragments/hot.config", "# as in th"),
    ]


def test_a_fragment_that_cannot_be_taken_is_refused_with_its_line(tree: Tree) -> None:
    (tree.root / "a.config").write_text("CONFIG_SEED=1\n")
    (tree.root / "b.config").write_text("CONFIG_SEED=x\n")
    (tree.root / "c.config").write_text("CONFIG_MATRIX_JOBS=2\n")
    assert refusal(tree, "p=@a.config|@b.config q=@c.config r=@absent SEED=@a.config") == [
        "4 values of MATRIX_AXES are refused",
        "  b.config:1: SEED=x is not an int (its value is: int from 0 to 100)",
        "  c.config:1: MATRIX_JOBS cannot be an axis: it is the same for all cells of a matrix",
        "  absent: no such file or directory (check the path, and that you may read it)",
        "  SEED is a symbol and takes no fragments "
        "(give the axis a name of its own, as in augment=@a.config)",
    ]


def test_a_fragment_that_another_axis_contradicts_is_refused(tree: Tree) -> None:
    (tree.root / "a.config").write_text("CONFIG_SEED=1\n")
    assert refusal(tree, "p=@a.config SEED=1|2") == [
        "1 of 2 cells are refused",
        "  seed-2: SEED=1|2: SEED=2 contradicts SEED=1 (a.config:1)",
    ]


def test_excluded_cells_are_left_out_and_names_stay(tree: Tree) -> None:
    found = drafted(tree, "OPTIMIZER=sgd|adam SEED=1..3", exclude="optimizer=sgd seed=2..3; *adam_seed-1")
    assert [cell.name for cell in found.cells] == [
        "optimizer-sgd_seed-1",
        "optimizer-adam_seed-2",
        "optimizer-adam_seed-3",
    ]
    assert found.excluded == ["optimizer-sgd_seed-2", "optimizer-sgd_seed-3", "optimizer-adam_seed-1"]


def test_what_is_included_again_is_not_left_out(tree: Tree) -> None:
    """Presets use this for PRUNING=none, which has no sparsity to vary."""
    found = drafted(
        tree, "OPTIMIZER=sgd|adam SEED=1|2", exclude="OPTIMIZER=adam", include="OPTIMIZER=adam SEED=2"
    )
    assert [cell.name for cell in found.cells] == [
        "optimizer-sgd_seed-1",
        "optimizer-sgd_seed-2",
        "optimizer-adam_seed-2",
    ]
    assert found.excluded == ["optimizer-adam_seed-1"]


def test_a_rule_that_matches_nothing_is_refused(tree: Tree) -> None:
    with pytest.raises(MatrixError) as caught:
        drafted(tree, "OPTIMIZER=sgd|adam SEED=1|2", exclude="OPTIMIZER=sgd SEED=3")
    assert (str(caught.value), caught.value.hint) == (
        "MATRIX_EXCLUDE: OPTIMIZER=sgd SEED=3 matches no cell",
        "remove it; the axes are OPTIMIZER, SEED, and a cell is called optimizer-sgd_seed-1",
    )


def test_rules_that_leave_nothing_are_refused(tree: Tree) -> None:
    with pytest.raises(MatrixError) as caught:
        drafted(tree, "OPTIMIZER=sgd|adam SEED=1|2", exclude="SEED=1; SEED=2")
    assert (str(caught.value), caught.value.hint) == (
        "MATRIX_EXCLUDE leaves out all 4 cells",
        "remove a group of it, or a word",
    )


def test_further_cells_are_added_and_every_cell_has_every_axis(tree: Tree) -> None:
    found = drafted(tree, "OPTIMIZER=sgd|adam", include="LEARNING_RATE=0.7 OPTIMIZER=adam; SEED=7")
    assert [(cell.name, cell.values) for cell in found.cells] == [
        ("optimizer-sgd", {"OPTIMIZER": "sgd", "LEARNING_RATE": "0.1", "SEED": "1"}),
        ("optimizer-adam", {"OPTIMIZER": "adam", "LEARNING_RATE": "0.003", "SEED": "1"}),
        (
            "optimizer-adam_learning-rate-0.7",
            {"OPTIMIZER": "adam", "LEARNING_RATE": "0.7", "SEED": "1"},
        ),
        ("seed-7", {"OPTIMIZER": "sgd", "LEARNING_RATE": "0.1", "SEED": "7"}),
    ]
    assert [(axis.symbol, axis.values, axis.included) for axis in found.axes] == [
        ("OPTIMIZER", ["sgd", "adam"], False),
        ("LEARNING_RATE", ["0.1", "0.003", "0.7"], True),
        ("SEED", ["1", "7"], True),
    ]


def test_a_further_cell_may_have_trackers(tree: Tree) -> None:
    found = cells_of(tree, "SEED=1", layer(tree, TRACKER="wandb"), include="SEED=2 TRACKER=none|both")
    assert [(cell.name, cell.values["TRACKER"]) for cell in found] == [
        ("seed-1", "wandb"),
        ("seed-2_tracker-none", "none"),
        ("seed-2_tracker-both", "both"),
    ]


def test_a_further_cell_that_is_there_already_is_refused(tree: Tree) -> None:
    assert refusal(tree, "SEED=1|2", include="SEED=2 OPTIMIZER=sgd") == [
        "cells seed-2 and seed-2_optimizer-sgd have the same configuration"
    ]


def test_refused_cells_are_skipped_if_the_matrix_says_so(tree: Tree) -> None:
    found = drafted(tree, "OPTIMIZER=sgd|adam ADAM_BETAS='0.5 0.5'|'0.9 0.9'", skip_refused="y")
    assert [cell.name for cell in found.cells] == [
        "optimizer-adam_adam-betas-0.5,0.5",
        "optimizer-adam_adam-betas-0.9,0.9",
    ]
    assert [(one.name, one.values) for one in found.refused] == [
        ("optimizer-sgd_adam-betas-0.5,0.5", {"OPTIMIZER": "sgd", "ADAM_BETAS": "0.5 0.5"}),
        ("optimizer-sgd_adam-betas-0.9,0.9", {"OPTIMIZER": "sgd", "ADAM_BETAS": "0.9 0.9"}),
    ]
    assert found.refused[0].reason.endswith("has no effect: needs OPTIMIZER_ADAM=y, which is n")


def test_skipping_is_no_cover_for_mistakes(tree: Tree) -> None:
    assert refusal(tree, "OPTIMIZER=sgd ADAM_BETAS='0.5 0.5'", skip_refused="y")[0] == (
        "1 of 1 cells are refused"
    )
    command_line = layer(tree, OPTIMIZER="adam")
    assert refusal(tree, "OPTIMIZER=sgd|adam", (), command_line, skip_refused="y")[0] == (
        "1 of 2 cells are refused"
    )


def test_cells_in_quarantine_are_known_by_name(tree: Tree) -> None:
    (tree.root / "known.txt").write_text(
        "\ufeff*_seed-2 # diverges\r\n# flaky\n\noptimizer-sgd_seed-2 # twice\nx # y\n"
    )
    found = drafted(tree, "OPTIMIZER=sgd|adam SEED=1|2", quarantine="known.txt")
    assert found.quarantine == {"optimizer-sgd_seed-2": "diverges", "optimizer-adam_seed-2": "diverges"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("seed-1", "known.txt:2: 'seed-1' has no reason"),
        ("seed-1 #  ", "known.txt:2: 'seed-1 #' has no reason"),
        ("seed-1 seed-2 # why", "known.txt:2: 'seed-1 seed-2 # why' is not one name or pattern"),
    ],
)
def test_a_quarantine_line_without_name_or_reason_is_refused(tree: Tree, line: str, message: str) -> None:
    (tree.root / "known.txt").write_text(f"# known\n{line}\n")
    assert refusal(tree, "SEED=1|2", quarantine="known.txt") == [message]


def test_names_that_differ_in_case_alone_are_refused(tree: Tree) -> None:
    assert refusal(tree, "BEHAVIOR=good|Good") == ["two cells would be called behavior-Good"]
