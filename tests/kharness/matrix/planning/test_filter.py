"""FILTER and the rules of MATRIX_EXCLUDE."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kharness.matrix.planning.filter import choose, parse_filter
from kharness.runs.errors import MatrixError

NAME = "optimizer-adamw_learning-rate-1e-3_seed-12"
VALUES = {"OPTIMIZER": "adamw", "LEARNING_RATE": "1e-3", "SEED": "12", "BETAS": "0.9 0.999"}


@dataclass(frozen=True)
class Cell:
    name: str
    values: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("OPTIMIZER=adamw", True),
        ("optimizer=sgd|adamw SEED=12", True),
        ("OPTIMIZER=adamw SEED=1", False),
        ("OPTIMIZER=ADAMW", False),
        ("OPTIMIZER=adam*", True),
        ("CONFIG_LEARNING_RATE=0.001", True),
        ("SEED=12.0", True),
        ("SEED=1..20", True),
        ("SEED=13..20", False),
        ("BETAS='0.9 0.999'|'0.9 0.9'", True),
        ("DEPTH=3", False),
        ("*seed-12", True),
        ("seed-12", False),
        (f"*seed-1|{NAME}", True),
        ("*adamw* OPTIMIZER=sgd", False),
    ],
)
def test_every_word_must_hold(text: str, fits: bool) -> None:
    assert parse_filter(text).matches(NAME, VALUES) is fits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SEED=", "FILTER: SEED= is not SYMBOL=value|value"),
        ("SE-ED=1", "FILTER: SE-ED=1 is not SYMBOL=value|value"),
        ("SEED='1", "FILTER: a quote is not closed"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_filter(text)
    assert str(caught.value) == message


def test_a_filter_that_matches_nothing_is_refused() -> None:
    cells = [Cell("seed-1", {"SEED": "1"}), Cell("seed-2", {"SEED": "2"})]
    assert choose(parse_filter("SEED=2"), cells) == cells[1:]
    with pytest.raises(MatrixError) as caught:
        choose(parse_filter("SEED=3"), cells)
    assert (str(caught.value), caught.value.hint) == (
        "FILTER=SEED=3 matches none of 2 cells",
        "the axes are SEED; a cell is called seed-1",
    )
