"""The text of MATRIX_AXES, and names of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.matrix.axes import Axis, cell_name, parse_axes
from kharness.matrix.errors import MatrixError

plain_values = st.text("abc019. |", max_size=6)
some_axes = st.lists(
    st.builds(
        Axis,
        st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(lambda s: not s.startswith("CONFIG_")),
        st.lists(plain_values, min_size=1, max_size=4, unique=True),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda axis: axis.symbol,
)


def test_axes_are_separated_by_blanks_and_values_by_bars() -> None:
    assert parse_axes("  OPTIMIZER=sgd|adamw\n SEED=1|2|3 ") == [
        Axis("OPTIMIZER", ["sgd", "adamw"]),
        Axis("SEED", ["1", "2", "3"]),
    ]


def test_the_prefix_of_a_symbol_is_taken_off() -> None:
    assert parse_axes("CONFIG_SEED=1") == [Axis("SEED", ["1"])]


def test_quotes_hold_blanks_bars_and_nothing() -> None:
    assert parse_axes("BETAS='0.9 0.999'|'0.8 0.9' WANDB_ENTITY=''|'a|b'") == [
        Axis("BETAS", ["0.9 0.999", "0.8 0.9"]),
        Axis("WANDB_ENTITY", ["", "a|b"]),
    ]


@given(some_axes)
def test_axes_are_read_back_as_they_are_shown(axes: list[Axis]) -> None:
    assert parse_axes(" ".join(map(str, axes))) == axes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "MATRIX_AXES is empty"),
        ("  ", "MATRIX_AXES is empty"),
        ("SEED", "MATRIX_AXES: SEED is not SYMBOL=value|value"),
        ("=1|2", "MATRIX_AXES: =1|2 is not SYMBOL=value|value"),
        ("SE-ED=1", "MATRIX_AXES: SE-ED=1 is not SYMBOL=value|value"),
        ("SEED=", "MATRIX_AXES: SEED= has an empty value"),
        ("SEED=1||2", "MATRIX_AXES: SEED=1||2 has an empty value"),
        ("SEED=1|", "MATRIX_AXES: SEED=1| has an empty value"),
        ("SEED=1|2|1", "MATRIX_AXES: SEED has the value 1 twice"),
        ("SEED=1 OPTIMIZER=sgd SEED=2", "MATRIX_AXES: SEED is an axis twice"),
        ("BETAS='0.9 0.999", "MATRIX_AXES: a quote is not closed"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_axes(text)
    assert str(caught.value) == message
    assert caught.value.hint


def test_a_name_holds_the_varying_axes_in_their_order() -> None:
    axes = parse_axes("OPTIMIZER=sgd|adamw NUM_EPOCHS=3 SEED=1|2")
    values = {"OPTIMIZER": "adamw", "NUM_EPOCHS": "3", "SEED": "2"}
    assert cell_name(values, axes) == "optimizer-adamw_seed-2"


def test_a_single_cell_is_named_by_what_there_is() -> None:
    assert cell_name({"BATCH_SIZE": "8"}, parse_axes("BATCH_SIZE=8")) == "batch-size-8"


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
    assert cell_name({"X": value}, [Axis("X", [value, "other"])]) == name


@given(st.lists(st.text(max_size=60), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_names_of_folders(values: list[str]) -> None:
    axes = [Axis("X", values)]
    names = [cell_name({"X": value}, axes) for value in values]
    assert names[0] != names[1]
    assert all("/" not in name and "\0" not in name and len(name.encode()) < 100 for name in names)
