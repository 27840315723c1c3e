"""Which cell a word means (`make logs CELL=`), without a run."""

from __future__ import annotations

import pytest

from kharness.matrix.planning.asked_cells import asked_cell
from kharness.runs.errors import MatrixError

NAMES = [f"optimizer-{name}_seed-{seed}" for name in ("sgd", "adam", "adamw") for seed in (1, 2, 11)]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("optimizer-adam_seed-1", "optimizer-adam_seed-1"),
        ("adamw_seed-2", "optimizer-adamw_seed-2"),
        ("ADAM_SEED-2", "optimizer-adam_seed-2"),
        ("sgd_seed-1", "optimizer-sgd_seed-1"),  # not that of seed 11
    ],
)
def test_a_part_of_a_name_is_enough_where_one_cell_has_it(word: str, name: str) -> None:
    assert asked_cell(word, NAMES, []) == name


def test_a_whole_word_goes_before_a_part_of_one() -> None:
    assert asked_cell("adam", ["optimizer-adam", "optimizer-adamw"], []) == "optimizer-adam"


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        (
            "adamw",
            "CELL=adamw is in 3 names",
            "say which: optimizer-adamw_seed-1, optimizer-adamw_seed-2, optimizer-adamw_seed-11",
        ),
        (
            "adam",
            "CELL=adam is in 6 names",
            "say which: optimizer-adam_seed-1, optimizer-adam_seed-2, optimizer-adam_seed-11, "
            "optimizer-adamw_seed-1 and 2 more",
        ),
        (
            "adamw_seed-9",
            "CELL=adamw_seed-9 matches none of 9 names",
            "perhaps optimizer-adamw_seed-1, optimizer-adamw_seed-2, optimizer-adamw_seed-11, "
            "optimizer-adam_seed-1 and 5 more",
        ),
        (
            "admaw",
            "CELL=admaw matches none of 9 names",
            "perhaps optimizer-adamw_seed-1, optimizer-adamw_seed-2, optimizer-adamw_seed-11, "
            "optimizer-adam_seed-1 and 2 more",
        ),
        (
            "../../etc; $(id)",
            "CELL=../../etc; $(id) matches none of 9 names",
            "perhaps optimizer-sgd_seed-1, optimizer-sgd_seed-2, optimizer-sgd_seed-11, "
            "optimizer-adam_seed-1 and 5 more",
        ),
    ],
)
def test_those_that_have_the_word_are_named_first(word: str, message: str, hint: str) -> None:
    with pytest.raises(MatrixError) as caught:
        asked_cell(word, NAMES, [])
    assert (str(caught.value), caught.value.hint) == (message, hint)
