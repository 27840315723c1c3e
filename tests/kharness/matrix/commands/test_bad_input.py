"""A command line that cannot be meant is refused in one line, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kharness.cli import main
from kharness.matrix.commands.given import typed
from monitoring.errors import UserError, error_lines

MATRIX = ["matrix", "-a", "x=1,2"]
SWEEP = ["sweep", "--metric", "val_loss"]
TRUE = ["--", "true", "{x}"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matrix", "-a", "a\nb=1", *TRUE], r"-a 'a\nb=1' is not NAME=value,value"),
        (["matrix", "-a", "\x1b[31mx=1", *TRUE], r"-a '\x1b[31mx=1' is not NAME=value,value"),
        (["matrix", "-a", "x=\udcff", *TRUE], r"'x=\udcff' is not UTF-8"),
        ([*MATRIX, "--", "true", "{x}\udcff"], r"'{x}\udcff' is not UTF-8"),
        ([*MATRIX, "-e", "A\nB=1", *TRUE], r"-e 'A\nB=1' is not NAME=value"),
        ([*MATRIX, "--follow", "{run-dir}/m.csv", "--follow", "{nope}", *TRUE], "{run-dir} is not an axis"),
        ([*MATRIX, "--jobs", "9" * 5000, *TRUE], "argument --jobs: "),
        ([*SWEEP, "-a", "x=0..inf", *TRUE], "-a x=0..inf: a range is low..high, of two numbers"),
        ([*SWEEP, "-a", "x=nan..1", *TRUE], "-a x=nan..1: a range is low..high, of two numbers"),
        ([*SWEEP, "-a", "x=log:1e-400..1", *TRUE], "-a x=log:1e-400..1 begins at a number that is too small"),
        ([*SWEEP, "-a", "x=0.5..1e400", *TRUE], "-a x=0.5..1e400 has an end that is too large"),
        ([*SWEEP, "-a", f"x=1..1{'0' * 30}", *TRUE], f"-a x=1..1{'0' * 30} has an end that is too large"),
        ([*SWEEP, "-a", "x=1..1000000000000", *TRUE], "X=1..1000000000000 is 1000000000000 values"),
        ([*SWEEP, "-a", "x=0.1..1", "--trials", "999999999", *TRUE], "argument --trials: 999999999 is more"),
        (["import", "m.csv", "--name", "../m"], "--name ../m is no name of a run"),
        (["import", "m.csv", "--name", "a\nb"], r"--name 'a\nb' is no name of a run"),
        (["import", "m.csv", "--name", "n" * 300], "--name nnn"),
        (["run", "--name", ".m", *TRUE], "--name .m is no name of a run"),
        (["run", "--name", "latest", *TRUE], "--name latest is no name of a run"),
        ([*MATRIX, "--render", "nope.yaml", *TRUE], "--render nope.yaml: it cannot be read: no such file"),
        (["import", "\x1b[31m.csv"], r"\x1b[31m.csv does not exist"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as raised:
        main(words)
    error, hint = error_lines(raised.value, raised.value.hint)
    shown = error.removeprefix("error: ").removeprefix(f"{tmp_path}/")
    assert (shown[: len(said)], hint[:6], "\n" in error) == (said, "hint: ", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (r'"a\nb" = 1', r"kharness.toml: a\nb is not an option"),
        (r'pattern = "(?P<step>\n("', r"kharness.toml: pattern: (?P<step>\n( is no regular expression"),
        (r'env = {A = "a\u0000"}', r"A=a\x00 holds a NUL byte"),
        (r'command = ["true", "{x}\u0000"]', r"{x}\x00 holds a NUL byte"),
        (
            f"axis = {'[' * 3000}{']' * 3000}",
            "kharness.toml cannot be read: maximum recursion depth exceeded",
        ),
    ],
)
def test_file_that_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    (tmp_path / "kharness.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as raised:
        main([*MATRIX, *([] if "command" in content else TRUE)])
    error, hint = error_lines(raised.value, raised.value.hint)
    shown = error.removeprefix("error: ")
    assert (shown[: len(said)], hint[:6], "\n" in error) == (said, "hint: ", False)
    assert [path.name for path in tmp_path.iterdir()] == ["kharness.toml"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("3", 3),
        ("true", "true"),
        ("1e400", "1e400"),
        ("NaN", "NaN"),
        ("1" + "0" * 400, "1" + "0" * 400),
        ("18446744073709551617", "18446744073709551617"),  # which a journal would round
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_value_is_a_number_where_the_journal_keeps_its_digits(text: str, value: object) -> None:
    assert typed(text) == value
