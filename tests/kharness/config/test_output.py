"""Printed output fits into the width of the terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kharness.config.output import fitted, in_columns, said_if_slow
from monitoring.errors import command_lines

from ...waiting import wait_until

TEXT = """\
matrix: 48 runs of lenet5 (OPTIMIZER=sgd|adamw BATCH_SIZE=64|128 SEED=1|2|3)

OPTIMIZER   n   test accuracy (%)   val loss   training (s)
---------  ---  -----------------  ----------  ------------
sgd        3/3       94.98 ± 0.60    0.1314      17.7 (n=1)
adamw      3/3       95.54 ± 0.61    0.1310           -

  adamw  +0.56 (-0.50 to +1.62) points  no difference shown: it is within chance"""

IN_40 = """\
matrix: 48 runs of lenet5
  (OPTIMIZER=sgd|adamw BATCH_SIZE=64|128
  SEED=1|2|3)

OPTIMIZER   n   test accuracy (%)
---------  ---  -----------------
sgd        3/3       94.98 ± 0.60
adamw      3/3       95.54 ± 0.61
no room for the columns val loss,
  training (s)

  adamw  +0.56 (-0.50 to +1.62) points
    no difference shown: it is within
    chance"""


def test_lines_are_wrapped_and_tables_lose_their_last_columns() -> None:
    assert in_columns(TEXT, 40) == IN_40
    assert in_columns(TEXT, 80) == TEXT


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            "  matrix: not running; resume with: make continue RUN=x",
            ["  matrix: not running; resume with:", "    make continue RUN=x"],
        ),
        (
            "csv: 5 records; later: kharness sync results/a/b/c/d/e/f/g/h/i",
            ["csv: 5 records; later:", "  kharness sync \\", "      results/a/b/c/d/e/f/g/h/i"],
        ),
        (
            "one run alone: make train CONFIG_A=b 'CONFIG_C=1:2 3' CONFIG_D=e",
            ["one run alone:", "  make train CONFIG_A=b \\", "      'CONFIG_C=1:2 3' CONFIG_D=e"],
        ),
        (
            "      make train 'CONFIG_A=b c d e f g h i j k l m n o p q'",
            ["      make train \\", "          'CONFIG_A=b c d e f g h i j k l m n o p q'"],
        ),
        (
            "next: cd /a/b && kharness matrix -a seed=1..5 -- python t.py",
            ["next: cd /a/b && kharness matrix -a \\", "    seed=1..5 -- python t.py"],
        ),
        (
            "hint: make continue RUN=results/a/b/c SEED=1,2,3",
            ["hint: make continue RUN=results/a/b/c \\", "    SEED=1,2,3"],
        ),
        (
            "hint: make data CONFIG_MODEL=b fetches it: no download needed",
            ["hint: make data CONFIG_MODEL=b fetches", "  it: no download needed"],
        ),
        (
            "hint: make test_matrix SEED=1..5, or SEED=2, begins",
            ["hint: make test_matrix SEED=1..5, or", "  SEED=2, begins"],
        ),
        (
            "  make test_matrix SEED=1..5 CONFIG_A=b 'X=1 2'",
            ["  make test_matrix SEED=1..5 \\", "      CONFIG_A=b 'X=1 2'"],
        ),
        (
            "  kharness matrix -a lr=1 -a seed=1..5 -- python t.py '{lr} x'",
            ["  kharness matrix -a lr=1 -a seed=1..5 \\", "      -- python t.py '{lr} x'"],
        ),
        ("hint: make help lists them, and names what", ["hint: make help lists them, and names", "  what"]),
    ],
)
def test_command_that_ends_a_line_can_be_copied(line: str, parts: list[str]) -> None:
    """In one piece where there is room for it; a sentence about one is no command."""
    assert in_columns(line, 40).split("\n") == parts


COMMAND = (
    "      make test_matrix CONFIG_LENET5_QUICK=y 'CONFIG_MATRIX_AXES=A=1|2 SEED=1..5' "
    "CONFIG_NOTE='it'\"'\"'s on'"
)

IN_48 = """\
      make test_matrix CONFIG_LENET5_QUICK=y \\
          'CONFIG_MATRIX_AXES=A=1|2 SEED=1..5' \\
          CONFIG_NOTE='it'"'"'s on'"""


def test_a_command_is_wrapped_so_that_a_shell_takes_it() -> None:
    assert "\n".join(command_lines(COMMAND, 48)) == IN_48
    assert command_lines(COMMAND, 200) == command_lines(COMMAND, 0) == [COMMAND]
    typed = [f"make() {{ printf '<%s>' \"$@\"; }}\n{text}" for text in (COMMAND, IN_48)]
    assert [subprocess.run(["sh", "-c", text], capture_output=True, check=True).stdout for text in typed] == [
        b"<test_matrix><CONFIG_LENET5_QUICK=y><CONFIG_MATRIX_AXES=A=1|2 SEED=1..5><CONFIG_NOTE=it's on>"
    ] * 2


def test_lines_are_as_wide_as_the_terminal_and_whole_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 40))
    with open(slave, "w") as terminal, open(tmp_path / "output", "w") as file:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert fitted(TEXT) == IN_40
        monkeypatch.setattr(sys, "stdout", file)
        assert fitted(TEXT) == TEXT
    os.close(master)


def test_only_what_is_slow_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with said_if_slow("writing", after=600):
        pass
    assert capsys.readouterr().out == ""
    with said_if_slow("writing", after=0):
        said = ""

        def is_said() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return said == "writing\n"

        wait_until(is_said, "its line")


def test_nothing_that_is_printed_controls_the_terminal() -> None:
    assert fitted("a\x1b[31m\nb\tc") == "a\\x1b[31m\nb\\tc"
    words = ["a", "\x1b[31m\\n\nred", "it's\n", '"\t"']
    [line] = command_lines(shlex.join(words), 0)
    assert line == r"""a $'\x1b[31m\\n\nred' 'it'"'"'s""" + "\n'" + r""" $'"\t"'"""
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert printed.decode().split("\0") == [*words, ""]
