"""The order in which cells run: seed by seed, shuffled within, recorded, and the same when it goes on."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from kharness.config.tree import Tree
from kharness.matrix.planning.cells import Cell, blocked

from ..conftest import Checkout

BLOCKED = "CONFIG_MATRIX_ORDER_BLOCKED=y"
AXES = "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam LEARNING_RATE=0.1|0.2 SEED=1|2"


def cells(optimizers: Sequence[str], seeds: Sequence[str]) -> list[Cell]:
    return [
        Cell(f"optimizer-{optimizer}_seed-{seed}", {"OPTIMIZER": optimizer, "SEED": seed}, "m")
        for optimizer, seed in product(optimizers, seeds)
    ]


def test_every_seed_is_a_block_of_all_variants() -> None:
    optimizers, seeds = list("abcdefgh"), ["3", "1", "2"]
    order = blocked(cells(optimizers, seeds))
    assert [name.rpartition("-")[2] for name in order] == ["3"] * 8 + ["1"] * 8 + ["2"] * 8
    blocks = [[name.split("_")[0][-1] for name in order[8 * n : 8 * n + 8]] for n in range(3)]
    assert [sorted(block) for block in blocks] == [optimizers] * 3
    assert optimizers not in blocks
    assert len({tuple(block) for block in blocks}) == 3


def test_a_drift_hits_all_variants_alike_on_average() -> None:
    """Over 200 seeds every variant has the same mean place; listed by variant they lie blocks apart.

    A place in a block of 4 has variance (4² - 1)/12, so a mean of 200 has a deviation of 0.079.
    """
    order = blocked(cells(list("abcd"), [str(seed) for seed in range(200)]))
    places = {
        variant: [i % 4 for i, name in enumerate(order) if f"-{variant}_" in name] for variant in "abcd"
    }
    means = {variant: sum(found) / len(found) for variant, found in places.items()}
    assert all(abs(mean - 1.5) < 4 * 0.079 for mean in means.values()), means


def test_without_seeds_all_are_one_block_and_cells_left_out_move_no_other() -> None:
    every = cells(list("abcdefgh"), ["1"])
    without = [Cell(cell.name, {"OPTIMIZER": cell.values["OPTIMIZER"]}, "m") for cell in every]
    assert blocked(without) == blocked(every)
    chosen = [name for name in blocked(every) if name != every[2].name]
    assert blocked([cell for cell in every if cell.name != every[2].name]) == chosen


def test_a_matrix_runs_and_goes_on_in_the_order_that_it_records(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix", AXES, BLOCKED, "KEEP_GOING=n", "CONFIG_BEHAVIOR=once-exit-9@2")
    assert code == 3, output
    plan = json.loads((checkout.latest / "matrix.json").read_text())
    listed = [cell["name"] for cell in plan["cells"]]
    assert [values["SEED"] for values in (cell["values"] for cell in plan["cells"])] == ["1", "2"] * 4
    order = plan["order"]
    assert sorted(order) == sorted(listed)
    assert [name[-1] for name in order] == list("11112222")
    assert started(output) == order[:5]  # the first of seed 2 fails
    code, output = checkout.run("continue", "KEEP_GOING=y")
    assert started(output) == order[4:]
    table = (checkout.latest / "summary.csv").read_text().splitlines()[1:]
    variants = ["sgd, learning_rate=0.1", "sgd, learning_rate=0.2"]
    variants += [variant.replace("sgd", "adam") for variant in variants]
    assert [row.split('"')[1] for row in table] == variants


def test_listed_cells_run_as_the_axes_say(checkout: Checkout) -> None:
    axes = "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1|2"
    code, output = checkout.run("test_matrix", axes)
    assert code == 0, output
    names = [f"optimizer-{name}_seed-{seed}" for name in ("sgd", "adam") for seed in (1, 2)]
    assert started(output) == names
    assert json.loads((checkout.latest / "matrix.json").read_text())["order"] == []


def test_the_dry_run_lists_the_cells_as_they_would_run(checkout: Checkout) -> None:
    code, output = checkout.run("test_matrix_dry_run", AXES, BLOCKED)
    assert code == 0, output
    shown = re.findall(r"^  (\S+_seed-\d)$", output, re.MULTILINE)
    assert checkout.run("test_matrix", AXES, BLOCKED)[0] == 0
    assert shown == json.loads((checkout.latest / "matrix.json").read_text())["order"]


def started(output: str) -> list[str]:
    return re.findall(r"^\[\d+/\d+\] ([^:,\n]+)(?:, attempt 2)?$", output, re.MULTILINE)


def test_seed_by_seed_is_the_default(root: Path) -> None:
    """The small checkout's preset lists its cells, for tests of other things."""
    assert Tree.load(root).resolve([]).values["MATRIX_ORDER"] == "blocked"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
@pytest.mark.parametrize("script", ["test_matrix", "train"])
def test_every_attempt_says_what_else_the_machine_did(checkout: Checkout, script: str) -> None:
    """The run lasts more than a second; the share of other work is not measured on shorter ones."""
    slow = ("CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=110")
    axes = ("CONFIG_MATRIX_AXES=SEED=1",) if script == "test_matrix" else ()
    code, output = checkout.run(script, *slow, *axes)
    assert code == 0, output
    (path,) = checkout.root.glob("results/[!l]*/**/status.json")
    (attempt,) = json.loads(path.read_text())["attempts"]
    assert 0 <= attempt["other_work"] <= 1
