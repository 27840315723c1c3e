"""The best of each member of a choice, and the command that compares them."""

from __future__ import annotations

import shlex

from kharness.matrix.sweep.leaderboard import winners_of

SYMBOLS = ["OPTIMIZER", "LEARNING_RATE"]


def values(optimizer: str, rate: str) -> dict[str, str]:
    return {"OPTIMIZER": optimizer, "LEARNING_RATE": rate}


RANKED = [
    (values("adam", "1e-2"), 0.1),
    (values("adam", "0.1"), 0.2),
    (values("sgd", "0.1"), 0.3),
    (values("adam", "0.001"), 0.4),
    (values("sgd", "1e-2"), 0.5),
]
TRIED = [*(found for found, _ in RANKED), values("sgd", "0.001")]


def test_the_best_of_each_name_says_where_its_range_ended_too_early() -> None:
    (found,) = winners_of(SYMBOLS, RANKED, TRIED)
    assert (found.symbol, [(one.value, one.rank, one.ends) for one in found.winners]) == (
        "OPTIMIZER",
        [("adam", 1, {}), ("sgd", 3, {"LEARNING_RATE": "highest"})],
    )
    assert found.lines == [
        "adam  rank 1  LEARNING_RATE=1e-2  0.1",
        "sgd   rank 3  LEARNING_RATE=0.1  0.3  (LEARNING_RATE is the highest that was tried)",
    ]


def test_the_command_compares_each_with_its_own_values() -> None:
    (found,) = winners_of(SYMBOLS, RANKED, TRIED)
    assert shlex.split(found.command({"MAX_STEPS": "200"})) == [
        *("make", "test_matrix", "CONFIG_MAX_STEPS=200"),
        "CONFIG_MATRIX_AXES=OPTIMIZER=adam LEARNING_RATE=1e-2 SEED=101..105",
        "CONFIG_MATRIX_INCLUDE=OPTIMIZER=sgd LEARNING_RATE=0.1 SEED=101..105",
    ]


def test_a_sweep_of_numbers_or_of_names_alone_has_no_best_of_each() -> None:
    numbers = [({"LEARNING_RATE": rate, "BATCH_SIZE": "4"}, 0.1) for rate in ("0.1", "0.2")]
    names = [({"OPTIMIZER": name}, 0.1) for name in ("adam", "sgd")]
    for symbols, ranked in ((["LEARNING_RATE", "BATCH_SIZE"], numbers), (["OPTIMIZER"], names)):
        assert winners_of(symbols, ranked, [one for one, _ in ranked]) == []
