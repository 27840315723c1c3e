"""`make help` is made from the Makefile's own comments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = """\
VARIABLE := x ## not a target
##@ Training
train all: $(setup)\t\t##* train what is configured
\t@python train.py ## not help
silent: train
##@ Configuration (O=dir and other variables that are so many that they take more than a line)
defconfig:\t\t## [DEFCONFIG=name] start from a preset, of which there are many more than would fit a line
# defconfig-<name>: $(setup)\t## the same, completed by tab
"""
EVERY_DAY = """\
Every day:
  train, all  train what is configured

Options go on the line: make train NUM_EPOCHS=3, make test_matrix SEED=1..5.
make help ALL=y lists 2 more.
"""
EVERYTHING = """\
Training:
  train, all        train what is configured

Configuration (O=dir and other variables that are so many that they take more
than a line):
  defconfig         [DEFCONFIG=name] start from a preset, of which there are
                    many more than would fit a line
  defconfig-<name>  the same, completed by tab
"""


def make_help(root: Path, makefile: Path, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, root / "scripts" / "make_help.py", makefile],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    ).stdout


@pytest.mark.parametrize(("variables", "shown"), [({}, EVERY_DAY), ({"ALL": "y"}, EVERYTHING)])
def test_help_lists_targets_under_their_headings(
    root: Path, tmp_path: Path, variables: dict[str, str], shown: str
) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    assert make_help(root, tmp_path / "Makefile", **variables) == shown


def test_the_first_help_is_a_dozen_targets_on_a_terminal_of_80_columns(root: Path) -> None:
    shown, everything = (make_help(root, root / "Makefile", ALL=value).splitlines() for value in ("", "y"))
    targets = [line.split()[0] for line in shown if line.startswith("  ") and line[2] != " "]
    assert targets == [
        *("train", "test_matrix", "test_matrix_dry_run", "continue", "status", "logs"),
        *("report", "compare", "data"),
        *("menuconfig", "defconfig", "list-defconfigs", "dashboard", "gputop"),
    ]
    assert [line for line in [*shown, *everything] if len(line) > 80] == []
    assert set(targets) < {line.split()[0].rstrip(",") for line in everything if line.startswith("  ")}
