"""The text format: quotes, comments, line ends."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.config.dotconfig import ConfigLine, check_storable, parse_lines, quote, read_text, unquote
from kharness.config.errors import ConfigError

storable = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(storable)
def test_every_storable_string_survives_quoting_in_a_file(value: str) -> None:
    check_storable(value)
    [line] = parse_lines(f"CONFIG_X={quote(value)}\n", "x")
    assert line == ConfigLine(1, "X", quote(value))
    assert unquote(quote(value)) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\nb", "holds a line break"),
        ("a\rb", "holds a line break"),
        ("a\0b", r"holds the control character '\x00'"),
        ("a\x7f", r"holds the control character '\x7f'"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_string_that_no_line_can_hold_is_refused(value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        check_storable(value)


def test_lines_of_a_file_are_assignments_unsets_and_comments() -> None:
    text = '# comment\r\n\n  # indented\nCONFIG_A=y  \r\n# CONFIG_B is not set\n#CONFIG_C=y\nCONFIG_D=" #"'
    assert list(parse_lines(text, "x")) == [
        ConfigLine(4, "A", "y"),
        ConfigLine(5, "B", None),
        ConfigLine(7, "D", '" #"'),
    ]


@pytest.mark.parametrize("line", ["FOO=y", " CONFIG_FOO=y", "CONFIG_FOO = y", "\ufeffCONFIG_FOO=y"])
def test_line_that_is_nearly_an_assignment_is_refused_with_the_right_one(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(parse_lines(f"\n{line}\n", "defconfigs/x"))
    assert str(caught.value) == f"defconfigs/x:2: {line!r} is not an assignment"
    assert caught.value.hint == "write CONFIG_FOO=… from the first column on and without blanks around the ="


@pytest.mark.parametrize("kind", ["device", "pipe", "large"])
def test_what_has_no_end_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 25)
    with pytest.raises(ConfigError) as caught:
        read_text(path, "defconfigs/x")
    reason = "has 33,554,432 bytes: it is not a configuration" if kind == "large" else "is not a regular file"
    assert (str(caught.value), caught.value.hint) == (f"defconfigs/x {reason}", "name a text file")
