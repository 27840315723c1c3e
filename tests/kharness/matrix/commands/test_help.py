"""`kharness --help` and `kharness COMMAND --help` show the words that are typed, in 80 columns."""

from __future__ import annotations

import contextlib
import re

import pytest

from kharness import cli


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with contextlib.suppress(SystemExit):  # argparse
        assert cli.main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def test_every_command_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys)
    listed = re.findall(r"^  (\S+) +\S", shown.partition("\ncommands:\n")[2], flags=re.MULTILINE)
    assert listed == [*cli.CALLS, *cli.TARGETS]


@pytest.mark.parametrize("name", [*cli.CALLS, *cli.TARGETS])
def test_help_speaks_in_the_words_that_are_typed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys, name)
    assert shown.startswith(f"usage: kharness {name} ")
    assert re.findall(r"\S+\.py\b|\bmake\b|\bA=|\bRUN=", shown) == []
    assert ("-- PROGRAM …" in shown) == (name in ("run", "matrix", "sweep"))


def test_help_of_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert help_of(capsys, "compare") == (
        "usage: kharness compare A B [--metric NAME] [--better METRIC=up|down]\n"
        "       [--baseline NAME] [--budget UNIT] [FAIL_ON_REGRESSION=…] [TOLERANCE=…]\n"
        "\n"
        "Compare two runs, matrices or variants.\n"
        "\n"
        "A and B are runs, matrices, or variants of one, as\n"
        "results/latest:OPTIMIZER=sgd. With FAIL_ON_REGRESSION=y the exit code is 3 if\n"
        "B is worse than A, by more than TOLERANCE if that is given.\n"
    )
