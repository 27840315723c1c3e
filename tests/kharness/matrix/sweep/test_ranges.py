"""The range file of a sweep."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.config.errors import KharnessError
from kharness.config.tree import Tree
from kharness.matrix.sweep.ranges import Between, Listed, RangeFile, parse_range, read_ranges, whole_grid
from kharness.runs.errors import MatrixError

from ..conftest import Checkout


@pytest.fixture
def tree(checkout: Checkout) -> Tree:
    return Tree.load(checkout.root)


def read(tree: Tree, text: str) -> RangeFile:
    path = tree.root / "my.ranges"
    path.write_text(text)
    return read_ranges(tree, path)


def test_lines_are_ranges_or_single_values(tree: Tree) -> None:
    found = read(
        tree,
        """\
# how fast
CONFIG_LEARNING_RATE="1e-3|3e-4"
CONFIG_SEED=1|2|3
CONFIG_NUM_STEPS="16..256 log"
CONFIG_OPTIMIZER="all"
CONFIG_ADAM_BETAS="0.9 0.999|0.9 0.95"
CONFIG_BEHAVIOR="a:b:c"
CONFIG_GPU_MONITOR=y
# CONFIG_LAUNCHER_LOCAL_FORK_SERVER is not set
CONFIG_SWEEP_METHOD="random"
""",
    )
    assert found.ranges == [
        Listed("LEARNING_RATE", "1e-3|3e-4", ["1e-3", "3e-4"], in_order=False),
        Listed("SEED", "1|2|3", ["1", "2", "3"], in_order=False),
        Between("NUM_STEPS", "16..256 log", Decimal(16), Decimal(256), log=True, whole=True),
        Listed("OPTIMIZER", "all", ["adam", "sgd"], in_order=False),
        Listed("ADAM_BETAS", "0.9 0.999|0.9 0.95", ["0.9 0.999", "0.9 0.95"], in_order=False),
    ]
    assert [(a.symbol, a.value, a.origin.where) for a in found.fixed] == [
        ("BEHAVIOR", "a:b:c", "my.ranges:7"),
        ("GPU_MONITOR", "y", "my.ranges:8"),
        ("LAUNCHER_LOCAL_FORK_SERVER", "n", "my.ranges:9"),
        ("SWEEP_METHOD_RANDOM", "y", "my.ranges:10"),
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1:0.1:0.3", ["0.1", "0.2", "0.3"]),
        ("0.1:0.1:0.35", ["0.1", "0.2", "0.3"]),
        ("3e-4:1e-4:5e-4", ["0.0003", "0.0004", "0.0005"]),
        ("1e-8:1e-8:3e-8", ["1e-8", "2e-8", "3e-8"]),
        ("0.5:-0.25:0.1", ["0.5", "0.25"]),
        ("2:1:2", ["2"]),
    ],
)
def test_steps_are_exact_decimals(tree: Tree, text: str, values: list[str]) -> None:
    found = parse_range(tree, "LEARNING_RATE", text, "x")
    assert found == Listed("LEARNING_RATE", text, values, in_order=True)


@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 30))
def test_steps_hit_their_end_whatever_binary_floats_would_do(first: int, digits: int, count: int) -> None:
    from kharness.matrix.sweep.ranges import _steps

    start, step = Decimal(first).scaleb(-digits), Decimal(1).scaleb(-digits)
    end = start + (count - 1) * step
    texts = _steps(start, step, end, whole=False)
    assert [Decimal(text) for text in texts] == [start + number * step for number in range(count)]


def test_whole_numbers_have_a_grid_and_others_do_not(tree: Tree) -> None:
    assert whole_grid(parse_range(tree, "SEED", "3..5", "x")).values == ["3", "4", "5"]
    assert whole_grid(parse_range(tree, "NUM_STEPS", "8:8:24", "x")).values == ["8", "16", "24"]
    for symbol, text in (("LEARNING_RATE", "0.1..0.5"), ("SEED", "1..100 log")):
        with pytest.raises(MatrixError, match=r"has no grid$"):
            whole_grid(parse_range(tree, symbol, text, "x"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('CONFIG_RATE="1|2"', "my.ranges:1: RATE=1|2: unknown symbol"),
        ('CONFIG_SEED="1|x"', "my.ranges:1: SEED=x is not an int"),
        ('CONFIG_SEED="1|2|1"', "my.ranges:1: SEED=1|2|1 has a value twice"),
        ('CONFIG_SEED="1:1:x"', "my.ranges:1: SEED=1:1:x is not an int"),
        ('CONFIG_SEED="1:0.5:2"', "my.ranges:1: SEED=1:0.5:2 has values that are not integers"),
        ('CONFIG_SEED="1:0:2"', "my.ranges:1: SEED=1:0:2 never reaches its end"),
        ('CONFIG_SEED="2:1:1"', "my.ranges:1: SEED=2:1:1 never reaches its end"),
        ('CONFIG_SEED="5..5"', "my.ranges:1: SEED=5..5 does not rise"),
        ('CONFIG_NUM_STEPS="0..9 log"', "my.ranges:1: NUM_STEPS=0..9 log has no order of magnitude: "
         "it must begin above 0"),
        ('CONFIG_LEARNING_RATE="0:0.1:1"', "my.ranges:1: LEARNING_RATE=0 is outside 0 < x"),
        ('CONFIG_LEARNING_RATE="0..1"', "my.ranges:1: LEARNING_RATE=0 is outside 0 < x"),
        ('CONFIG_LEARNING_RATE="0:1e-9:1"', "my.ranges:1: LEARNING_RATE=0:1e-9:1 is 1000000001 values, "
         "at most 10000 are taken"),
        ('CONFIG_OPTIMIZER="sgd|lion"', "my.ranges:1: OPTIMIZER=lion is not one of adam, sgd"),
        ('CONFIG_SEED=1', "my.ranges: no line gives a symbol more than one value"),
        ("", "my.ranges: no line gives a symbol more than one value"),
        ('CONFIG_SEED=1|2\nCONFIG_SEED=3', "my.ranges:2: SEED stands there twice"),
        ('CONFIG_SEED=1|2 # seeds', "my.ranges:1: SEED=1|2 # seeds is followed by an inline comment"),
        ('CONFIG_SEED="1|2', "my.ranges:1: SEED=\"1|2 has an unterminated quote"),
        ('CONFIG_MATRIX_JOBS=1|2', "my.ranges:1: MATRIX_JOBS cannot vary: it is the same for all trials "
         "of a sweep"),
        ('CONFIG_SEED=1|2\nCONFIG_TRACKER_RUN_NAME="x"', "my.ranges:2: TRACKER_RUN_NAME means nothing "
         "to a sweep"),
        ("SEED=1|2", "my.ranges:1: 'SEED=1|2' is not an assignment"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_taken_is_named(tree: Tree, line: str, message: str) -> None:
    with pytest.raises(KharnessError) as caught:
        read(tree, line)
    assert str(caught.value) == message
    assert caught.value.hint
