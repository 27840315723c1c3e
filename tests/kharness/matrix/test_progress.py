"""The live line, on a real terminal and off it."""

from __future__ import annotations

import re
import sys
from typing import Any

import pexpect
import pytest

from kharness.matrix.progress import duration

AXES = "CONFIG_MATRIX_AXES=SEED=1|2"


def on_terminal(checkout: Any, *arguments: str, columns: int = 120) -> str:
    """What the terminal got, with its control sequences."""
    command = [str(checkout.root / "scripts/test_matrix.py"), *arguments]
    child = pexpect.spawn(
        sys.executable,
        command,
        cwd=str(checkout.root),
        encoding="utf-8",
        timeout=60,
        dimensions=(24, columns),
    )
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0, child.before
    return str(child.before)


def test_a_terminal_sees_step_loss_and_time_left(checkout: Any) -> None:
    seen = on_terminal(checkout, AXES, "CONFIG_BEHAVIOUR=slow", "CONFIG_NUM_STEPS=120")
    line = r"\r0/2 done  seed-1  step \d+/120  loss \d\.\d{4}  ETA \d+(\.\d)? s\x1b\[K"
    assert re.search(line, seen)
    assert re.search(r"\r1/2 done  seed-2  step \d+/120  loss \d\.\d{4}  ETA \d+(\.\d)? s\x1b\[K", seen)
    assert "ETA" not in seen[: seen.index("step ")]
    # The line is wiped before each one that stays, so those read as if it had never been there.
    stays = [line.rpartition("\x1b[K")[2] for line in seen.split("\r\n")]
    assert [line[:10] for line in stays[2:6]] == ["[1/2] seed", "  complete", "[2/2] seed", "  complete"]


def test_a_narrow_terminal_gets_no_line_that_wraps(checkout: Any) -> None:
    seen = on_terminal(checkout, AXES, "CONFIG_BEHAVIOUR=slow", "CONFIG_NUM_STEPS=120", columns=30)
    drawn = re.findall(r"\r([^\r\n\x1b]+)\x1b\[K", seen)
    assert drawn
    assert max(map(len, drawn)) == 29


def test_a_file_gets_no_line_a_step_and_no_control_characters(checkout: Any) -> None:
    _, output = checkout.run("test_matrix", AXES, "CONFIG_BEHAVIOUR=slow", "CONFIG_NUM_STEPS=60")
    assert "\r" not in output
    assert "\x1b" not in output
    assert " step 1" not in output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (65, "1:05"), (3599.9, "1:00:00"), (7325, "2:02:05")],
)
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
