"""Words of a command line give placeholders, axes, and the name of the program."""

from __future__ import annotations

import re
import sys

import pytest

from kharness.matrix.commands.axes import grid_of, parse_axis
from kharness.matrix.commands.sweep import parse_range
from kharness.matrix.planning.template import Template
from kharness.matrix.sweep.ranges import Between
from kharness.runs.command import program_name
from kharness.runs.errors import MatrixError


def test_flag_goes_where_it_is_n() -> None:
    template = Template(["--lr={lr}", "--fast{fast?}", "{{x}}"], {"MODE": "{lr}"})
    assert template.names == ["lr", "fast"]
    assert template.filled({"lr": "1", "fast": "y"}) == (["--lr=1", "--fast", "{x}"], {"MODE": "1"})
    assert template.filled({"lr": "a b;$(x)", "fast": "n"}) == (
        ["--lr=a b;$(x)", "{x}"],
        {"MODE": "a b;$(x)"},
    )


def test_axes() -> None:
    assert parse_axis("seed=1..3").values == ["1", "2", "3"]
    assert parse_axis("lr=1e-3,3e-4,8..9").symbol == "LR"
    with pytest.raises(MatrixError, match=r"5\.\.1 has no values"):
        parse_axis("seed=5..1")
    assert parse_axis("data=../a,b..c,1.5").values == ["../a", "b..c", "1.5"]


@pytest.mark.parametrize(
    "text",
    ["0.1..0.3", "log:1e-5..1e-2", "-1..1", "1..2.5", "1e-3..1e-1", "+1..2", ".5..1.", "1.e-3..1E-2"],
)
def test_a_range_to_search_in_is_no_value_of_a_matrix(text: str) -> None:
    assert isinstance(parse_range(f"lr={text}"), Between)
    with pytest.raises(
        MatrixError, match=f"^-a lr={re.escape(text)}: {re.escape(text)} is a range to search in"
    ):
        parse_axis(f"lr={text}")


def test_groups_leave_out_and_add_runs() -> None:
    axes = [parse_axis("lr=1e-3,3e-4"), parse_axis("seed=1..2")]
    grid = grid_of(axes, "train", exclude=["lr=0.001 seed=2"], include=["lr=1e-2", "seed=2..3 lr=3e-4"])
    names = ["lr-1e-3_seed-1", "lr-3e-4_seed-1", "lr-3e-4_seed-2", "lr-1e-2_seed-1", "lr-1e-2_seed-2"]
    assert [cell.name for cell in grid.cells] == [*names, "lr-3e-4_seed-3"]
    assert list(grid.excluded) == ["lr-1e-3_seed-2"]
    assert [list(axis.values) for axis in grid.axes] == [["1e-3", "3e-4", "1e-2"], ["1", "2", "3"]]
    assert [list(axis.given) for axis in grid.axes] == [["1e-3", "3e-4"], ["1", "2"]]
    with pytest.raises(MatrixError, match="--include width=2: width is not an axis"):
        grid_of(axes, "train", include=["width=2"])
    with pytest.raises(MatrixError, match="--exclude leaves out every run"):
        grid_of(axes, "train", exclude=["lr=1e-3,3e-4"])


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "-u", "a/train.py", "--lr", "1"], "train"),
        ([sys.executable, "-m", "pkg.sft", "x"], "sft"),
        (["torchrun", "--nproc-per-node", "2", "pretrain.py"], "pretrain"),
        (["torchrun", "--nproc-per-node", "2", "-m", "trl.scripts.sft"], "sft"),
        ([sys.executable, "-m", "torch.distributed.run", "pretrain.py", "-m"], "pretrain"),
        (["./a.out", "x"], "a.out"),
        (["bash", "go.sh"], "go"),
        (["python", "-c", "print(1)"], "python"),
    ],
)
def test_program_is_named_by_its_script(argv: list[str], name: str) -> None:
    assert program_name(argv) == name
