"""A training's output may break; the training does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kharness.training.console import KeptOutput, lasting_output


@pytest.fixture(autouse=True)
def standard_error() -> Iterator[None]:
    """Restore standard error: a training replaces it until its process ends."""
    before = sys.stderr
    yield
    sys.stderr = before


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


def test_what_is_printed_is_kept_once_a_file_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was printed before, errors included; a bar, which is drawn on `shown`, is not."""
    log, before = tmp_path / "output.log", sys.stdout
    log.write_text("attempt 1\n")

    def fail() -> None:
        with lasting_output() as kept:
            train(kept)

    def train(kept: KeptOutput) -> None:
        print("one")
        kept.keep_in(log)
        print("two \u00fc")
        print("three", file=sys.stderr)
        getattr(sys.stdout, "shown").write("bar\n")  # noqa: B009 - no TextIO has it
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sys.stdout is before
    print("error: four", file=sys.stderr)
    lines = log.read_text().splitlines()
    assert lines[:5] == ["attempt 1", "one", "two \u00fc", "three", "Traceback (most recent call last):"]
    assert lines[-2:] == ["ZeroDivisionError", "error: four"]
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("one\ntwo \u00fc\nbar\n", "three\nerror: four\n")


def test_what_somebody_else_keeps_is_not_kept_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lasting_output() as kept:
        print("one")
        kept.drop()
        kept.add("two")
    assert (kept._text, kept._path, capsys.readouterr().out) == (None, None, "one\n")
