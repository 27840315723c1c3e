"""The text of MATRIX_AXES."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.matrix.planning.axes import NAMED_AXES, Axis, parse_axes, split_groups
from kharness.runs.errors import MatrixError

plain_values = st.text("abc019. |;@", max_size=6)
paths = st.from_regex(r"[a-c /|;@]{0,4}[a-c]{1,3}\.config", fullmatch=True)
some_axes = st.lists(
    st.builds(
        Axis,
        st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
            lambda s: not s.startswith("CONFIG_") and s.lower() not in NAMED_AXES
        ),
        st.lists(plain_values, min_size=1, max_size=4, unique=True),
    )
    | st.lists(paths, min_size=1, max_size=4, unique_by=lambda path: Path(path).stem).map(
        lambda files: Axis("augment", [Path(path).stem for path in files], files)
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


def test_what_people_vary_most_has_names_in_any_case() -> None:
    text = "Models=lenet5 optimizers=sgd pruning=none sparsity=0.5 Seed=1 trackers=none"
    symbols = ["MODEL", "OPTIMIZER", "PRUNING", "PRUNING_SPARSITY", "SEED", "TRACKER"]
    assert [axis.symbol for axis in parse_axes(text)] == symbols


def test_values_that_begin_with_an_at_sign_are_fragments() -> None:
    assert parse_axes("augment=@none.config|@folder/very.strong.config WANDB_ENTITY='@me'") == [
        Axis("augment", ["none", "very.strong"], ["none.config", "folder/very.strong.config"]),
        Axis("WANDB_ENTITY", ["@me"]),
    ]


def test_groups_are_separated_by_semicolons() -> None:
    assert split_groups(" A=1 B=2; C='x;y' ;", "MATRIX_INCLUDE") == ["A=1 B=2", "C='x;y'"]
    assert split_groups("  ", "MATRIX_INCLUDE") == []
    with pytest.raises(MatrixError, match=r"^MATRIX_INCLUDE: nothing stands between two semicolons$"):
        split_groups("A=1;;B=2", "MATRIX_INCLUDE")


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
        ("seed=1 SEED=2", "MATRIX_AXES: SEED is an axis twice"),
        ("x=@a.config|b", "MATRIX_AXES: x=@a.config|b mixes fragments and plain values"),
        ("x=@", "MATRIX_AXES: x=@ names no file"),
        ("x=@a/y.config|@b/y.config", "MATRIX_AXES: x has the value y twice"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_axes(text)
    assert str(caught.value) == message
    assert caught.value.hint


def test_many_values_are_shown_by_the_first_and_the_last() -> None:
    (few,) = parse_axes("SEED=1|2|3|4|5|6|7|8")
    (many,) = parse_axes("optimizer=a|b|c|d|e|f|g|h|'i j'")
    assert (few.shown, many.shown) == (str(few), "OPTIMIZER=a|…|'i j' (9 values)")
