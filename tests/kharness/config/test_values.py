"""`Value:` lines and the typed values of Kconfig text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.config.values import ValueType, canonical, parse_int, typed, value_type


def spec(line: str) -> ValueType:
    found = value_type(f"Some help.\n{line}")
    assert found
    return found


@pytest.mark.parametrize(
    ("line", "text", "value"),
    [
        ("Value: float, 0 < x <= 1", "1e-3", 0.001),
        ("Value: float, 0 < x <= 1", "1", 1.0),
        ("Value: float, 0 <= x", "0", 0.0),
        ("Value: float", "-1", -1.0),
        ("Value: list of 2 floats, 0 <= x < 1", "0.9 0.999", [0.9, 0.999]),
        ("Value: list of ints, x >= 1", "1  2 3", [1, 2, 3]),
        ("Value: list of ints, x >= 1", "", []),
        ("Value: int, 1 <= x <= 8", "08", 8),
    ],
)
def test_value_line_gives_a_typed_value(line: str, text: str, value: object) -> None:
    parsed = spec(line).parse(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("line", "text", "reason"),
    [
        ("Value: float, 0 < x <= 1", "0", "is outside 0 < x <= 1"),
        ("Value: float, 0 < x <= 1", "1.1", "is outside 0 < x <= 1"),
        ("Value: float, 0 < x", "abc", "is not a float"),
        ("Value: float", "", "is not a float"),
        ("Value: float", "nan", "is not a float"),
        ("Value: float", "inf", "is not a float"),
        ("Value: float", "1_0", "is not a float"),
        ("Value: float", " 1", "is not a float"),
        ("Value: float", "١", "is not a float"),
        ("Value: float", "1e999", "is too large for a float"),
        ("Value: list of 2 floats", "0.9", "has 1 of 2 values"),
        ("Value: list of 2 floats, 0 <= x < 1", "0.9 1", "has '1', which is outside 0 <= x < 1"),
        ("Value: list of ints, x >= 1", "1 2.5", "has '2.5', which is not an int"),
    ],
)
def test_value_line_refuses_text_with_a_reason(line: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        spec(line).parse(text)


@pytest.mark.parametrize(
    "line",
    ["Value: number", "Value: float, x", "Value: float, 0 < y", "Value: float, a < x", "Value: float 1"],
)
def test_value_line_that_cannot_be_read_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        value_type(line)


def test_help_without_a_value_line_leaves_text_alone() -> None:
    assert value_type("A Value: in the middle\nof the help.") is None
    assert value_type(None) is None


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.integers(0, 40))
def test_leading_zeros_are_no_octal_and_no_syntax_error(number: int, zeros: int) -> None:
    text = f"{'-' if number < 0 else ''}{'0' * zeros}{abs(number)}"
    assert canonical("int", text, None) == str(number)
    assert eval(repr(typed("int", text, None))) == number


@pytest.mark.parametrize("text", ["", "+1", "1.0", "0x10", "1_000", "١", "--1", "- 1", "1 "])
def test_text_that_c_conf_takes_for_no_int_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not an int"):
        parse_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_int_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        parse_int(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_survives_as_text(number: float) -> None:
    parsed = spec("Value: float").parse(repr(number))
    assert parsed == number
    assert math.copysign(1, float(str(parsed))) == math.copysign(1, number)
