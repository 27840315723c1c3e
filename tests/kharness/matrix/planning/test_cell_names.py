"""Names of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.matrix.planning.axes import Axis, parse_axes
from kharness.matrix.planning.cells import cell_name, varying


def test_a_name_holds_the_varying_axes_in_their_order() -> None:
    axes = parse_axes("OPTIMIZER=sgd|adamw NUM_EPOCHS=3 SEED=1|2")
    values = {"OPTIMIZER": "adamw", "NUM_EPOCHS": "3", "SEED": "2"}
    assert cell_name(values, varying(axes)) == "optimizer-adamw_seed-2"


def test_a_single_cell_is_named_by_what_there_is() -> None:
    assert cell_name({"BATCH_SIZE": "8"}, varying(parse_axes("BATCH_SIZE=8"))) == "batch-size-8"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("1e-3", "x-1e-3"),
        ("0.9 0.999", "x-0.9,0.999"),
        ("a/../b", "x-a-..-b~900ea8"),
        ("", "x-~e3b0c4"),
        (".", "x-~cdb4ee"),
    ],
)
def test_any_value_gives_a_name_that_a_folder_can_have(value: str, name: str) -> None:
    assert cell_name({"X": value}, varying([Axis("X", [value, "other"])])) == name


@given(st.lists(st.text(max_size=60), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_names_of_folders(values: list[str]) -> None:
    names = [cell_name({"X": value}, ["X"]) for value in values]
    assert names[0] != names[1]
    assert all("/" not in name and "\0" not in name and len(name.encode()) < 100 for name in names)


@pytest.mark.parametrize(
    ("symbols", "name"),
    [
        (["LEARNING_RATE"], "learning-rate-1"),
        (["OPTIMIZER_ADAMW_BETAS"], "adamw-betas-1"),
        (["LENET5_VALIDATION_FRACTION"], "validation-fraction-1"),
        (["PRUNING_SPARSITY"], "sparsity-1"),
        (["AVERYLONGSYMBOLWITHOUTWORDS"], "averylongsymbolwithoutwords-1"),
        (
            ["OPTIMIZER_ADAMW_BETAS", "A_DIFFERENT_ADAMW_BETAS"],
            "optimizer-adamw-betas-1_a-different-adamw-betas-1",
        ),
    ],
)
def test_a_long_symbol_loses_words_from_its_front_unless_that_is_ambiguous(
    symbols: list[str], name: str
) -> None:
    assert cell_name(dict.fromkeys(symbols, "1"), symbols) == name


def test_a_long_name_is_cut_and_told_apart() -> None:
    symbols = [f"SYMBOL_NUMBER_{i}" for i in range(9)]
    names = [cell_name(dict.fromkeys(symbols, value), symbols) for value in ("1", "2")]
    assert [len(name) for name in names] == [97, 97]
    assert names[0] != names[1]
