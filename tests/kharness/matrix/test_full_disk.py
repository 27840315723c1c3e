"""A disk that is full when the report is made: the table is printed, and what is not written is named."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from .conftest import Checkout

# Runs a program with DIRECTORY on a file system of its own, of which nothing is left.
FULL_DISK = """
cp -a "$DIRECTORY" "$SAVED"
mount -t tmpfs -o size=4m tmpfs "$DIRECTORY" || exit 125
cp -a "$SAVED/." "$DIRECTORY"
cat /dev/zero >"$DIRECTORY/filler" 2>/dev/null
"$@"
code=$?
ls -A "$DIRECTORY" >"$SAVED/left"
exit $code
"""


def on_full_disk(folder: Path, command: Sequence[str], cwd: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    variables = {
        "DIRECTORY": str(folder),
        "SAVED": f"{folder}-saved",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        done = subprocess.run(
            [*own_mounts, "sh", "-c", FULL_DISK, "sh", *command],
            env=variables,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("unshare, which gives a process file systems of its own, is not installed")
    if done.returncode == 125 or done.stderr.startswith("unshare"):
        pytest.skip(f"no file system of one's own here: {done.stderr.strip()}")
    return done.returncode, done.stdout, done.stderr


def test_the_table_comes_first_and_what_is_missing_last(checkout: Checkout) -> None:
    assert checkout.run("test_matrix", "CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adam SEED=1|2")[0] == 0
    where = f"results/{checkout.latest.name}"
    code, printed, errors = on_full_disk(
        checkout.root / "results", checkout.command("continue", "CONFIG_REPORT_GRAPHS=y"), checkout.root
    )
    lines = printed.splitlines()
    assert code == 74
    assert lines[0] == f"matrix: complete: 4 runs in {where}"
    assert [line.split()[0] for line in lines[2:6]] == ["OPTIMIZER", "---------", "sgd", "adam"], printed
    # The first graph tells that there is no room; the small files are each tried.
    first, *others, hint = errors.splitlines()
    assert (first, hint) == (
        "error: the report is not complete",
        f"hint: free some space, then: make graphs summary RUN={where}",
    )
    assert others[0].startswith(f"  {where}/graphs/")
    assert others[0].endswith(": no space left on device")
    files = ("summary.json", "summary.csv", "summary.md", "junit.xml", "report.html")
    assert others[1:-1] == [f"  {where}/{file}: no space left on device" for file in files]
    assert others[-1].endswith(" more graphs are not drawn")


def test_a_leaderboard_is_printed_first(checkout: Checkout) -> None:
    (checkout.root / "my.ranges").write_text("CONFIG_LEARNING_RATE=0.1|0.01\n")
    assert checkout.run("sweep", "RANGE_CONFIG=my.ranges")[0] == 0
    where = f"results/{checkout.latest.name}"
    code, printed, errors = on_full_disk(
        checkout.root / "results", checkout.command("continue"), checkout.root
    )
    assert code == 74
    assert "rank  LEARNING_RATE  " in printed
    files = ("leaderboard.json", "leaderboard.csv", "leaderboard.md")
    assert errors.splitlines() == [
        "error: the report is not complete",
        *(f"  {where}/{file}: no space left on device" for file in files),
        f"hint: free some space, then: make continue RUN={where}",
    ]


def test_a_matrix_that_cannot_be_planned_leaves_nothing(checkout: Checkout) -> None:
    results = checkout.root / "results"
    results.mkdir()
    code, _, errors = on_full_disk(results, checkout.command("test_matrix"), checkout.root)
    error, hint = errors.splitlines()
    assert (code, hint) == (74, "hint: free some space")
    assert error.endswith(": no space left on device")
    assert (checkout.root / "results-saved" / "left").read_text() == "filler\n"
    assert not (checkout.root / ".config").exists()
