"""A training's output may break; the training does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kharness.training.console import lasting_output

SCRIPT = """
import sys
from kharness.training.console import lasting_output

@lasting_output()
def main():
    for line in ("one", "two \\u00fc", "x" * 20_000, "four"):
        print(line, flush=True)
    return sys.stdout.fileno()

outside = sys.stdout
assert main() == 1
assert sys.stdout is outside
sys.exit(7)
"""


def ended(stdout: int) -> int:
    return subprocess.run([sys.executable, "-c", SCRIPT], stdout=stdout, check=False).returncode


def test_a_reader_that_is_gone_stops_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert ended(write) == 7
    finally:
        os.close(write)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device of Linux")
def test_a_full_disk_stops_nothing() -> None:
    with open("/dev/full", "wb") as full:
        assert ended(full.fileno()) == 7


def test_output_that_can_be_written_is(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == 7
    assert done.stdout == b"\n".join([b"one", b"two \xfc", b"x" * 20_000, b"four", b""])


def test_without_a_file_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with lasting_output():
        assert sys.stdout is before
        print("seen")
    assert capsys.readouterr().out == "seen\n"
