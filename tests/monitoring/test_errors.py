"""One root of what the user can fix, and one place that prints it."""

from __future__ import annotations

import os
import re
import resource
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from kharness.config.errors import KharnessError
from monitoring.errors import MonitoringError, UserError, error_lines, failure, report_error


def sources(root: Path) -> Iterator[Path]:
    for pattern in ("lib/**/*.py", "scripts/*.py", "*/train.py", "*/data.py", "*/model.py"):
        yield from root.glob(pattern)


@pytest.mark.parametrize("kind", [UserError, MonitoringError, KharnessError])
def test_error_is_printed_with_its_hint_and_gives_the_exit_code(
    kind: type[UserError], capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [
        report_error(kind("LR=2 is outside 0..1", hint="choose a smaller one")),
        report_error(kind("the disk is full", exit_code=74)),
    ]
    assert codes == [2, 74]
    assert capsys.readouterr() == (
        "",
        "error: LR=2 is outside 0..1\nhint: choose a smaller one\nerror: the disk is full\n",
    )
    assert error_lines(kind("a b").message) == ["error: a b"]
    assert error_lines("\x1b[31m\n is:\n  one", "a\n") == ["error: \\x1b[31m\\n is:\n  one", "hint: a\\n"]


def test_failure_is_one_line_about_the_first_import_that_failed() -> None:
    inner = ImportError("libx.so: failed to map\n  segment from shared object")
    outer = ImportError("\n\nIMPORTANT: PLEASE READ THIS\n")
    outer.__cause__ = inner
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = "ImportError: libx.so: failed to map segment from shared object"
    assert failure(outer) == mapped
    assert failure(MemoryError()) == "MemoryError"
    resource.setrlimit(resource.RLIMIT_AS, (2**43, before[1]))
    try:
        limit = "(addresses are limited to 8388608 MiB, see `ulimit -v`)"
        assert failure(outer) == f"{mapped} {limit}"
        assert failure(MemoryError()) == f"MemoryError {limit}"
        assert failure(KeyError("a")) == "KeyError: 'a'"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_no_line_of_an_error_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = UserError(
        "2 values are refused:\n  OPTIMIZER_SGD_LR=2 is outside 0..1\n  BATCH_SIZE=0 is outside 1..65536",
        hint="make menuconfig shows the ranges of /a/folder/whose/name/is-longer-than/all-of-a-line",
    )
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 30))
    with open(slave, "w") as terminal, open(tmp_path / "errors", "w") as file:
        monkeypatch.setattr(sys, "stderr", terminal)
        report_error(error)
        shown = os.read(master, 4096).decode().splitlines()
        monkeypatch.setattr(sys, "stderr", file)
        report_error(error)
    os.close(master)
    assert shown == [
        "error: 2 values are refused:",
        "  OPTIMIZER_SGD_LR=2 is",
        "    outside 0..1",
        "  BATCH_SIZE=0 is outside",
        "    1..65536",
        "hint: make menuconfig shows",
        "  the ranges of",
        "  /a/folder/whose/name/is-longer-than/all-of-a-line",
    ]
    assert (tmp_path / "errors").read_text().splitlines() == [
        "error: 2 values are refused:",
        "  OPTIMIZER_SGD_LR=2 is outside 0..1",
        "  BATCH_SIZE=0 is outside 1..65536",
        f"hint: {error.hint}",
    ]


def test_only_the_root_has_hints(root: Path) -> None:
    """Whatever else has one would not be reported where UserError is caught."""
    having = [path for path in sources(root) if re.search(r"\bself\.hint\s*=", path.read_text())]
    bare = root / "scripts" / "environment.py"  # of the standard library alone, so it cannot import the root
    assert sorted(having) == sorted([root / "lib/monitoring/errors.py", bare])


def test_errors_are_printed_in_one_place(root: Path) -> None:
    """Scripts that run on a bare Python, before there is an environment, cannot import that place."""
    printing = re.compile(r"""(print|write)\(\s*f?["'](error|hint): .*stderr""")
    ours = re.compile(r"^\s*(from|import) (kharness|monitoring)\b", re.MULTILINE)
    texts = {path: path.read_text() for path in sources(root)}
    found = [
        str(path.relative_to(root))
        for path, text in texts.items()
        if printing.search(text) and ours.search(text) and "runs on a bare Python" not in text
    ]
    assert found == [], "use monitoring.errors.print_error or report_error"
