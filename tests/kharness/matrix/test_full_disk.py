"""A full disk: the table is printed, what is not written is named, a program that filled it is continued."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from monitoring.journal.lineage import counting
from monitoring.journal.records import read_records

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
    return in_own_mounts(FULL_DISK, command, cwd, DIRECTORY=str(folder), SAVED=f"{folder}-saved")


def in_own_mounts(script: str, command: Sequence[str], cwd: Path, **variables: str) -> tuple[int, str, str]:
    """The same of a shell's script that may mount; `"$@"` is the command there."""
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        done = subprocess.run(
            [*own_mounts, "sh", "-c", script, "sh", *command],
            # A user who is root there has no right to root's home: matplotlib would say so.
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()), **variables},
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


# Prints until the disk is full, which it does not outlive; once there is room it has three steps to do.
FILLS = """
import os, time
last = 3 if not os.path.exists("filler") else 100_000
for step in range(1, last + 1):
    print(f"iter {step}: loss {1 / step:.6f}, time 1.00ms{'.' * 300}", flush=True)
    if step % 100 == 0:
        time.sleep(0.05)
"""
FILLED = """
mount -t tmpfs -o size=400k tmpfs "$DIRECTORY" || exit 125
cd "$DIRECTORY"
cp "$SAVED" fills.py
head -c 250000 /dev/zero >filler
"$@" run -- "$PYTHON" fills.py >/dev/null 2>&1
echo "exit code $?"
"$@" status
rm filler
"$@" continue >/dev/null 2>&1
echo "exit code $?"
cp results/latest/metrics.jsonl results/latest/output.log "$OUT"
"""


def test_program_that_fills_the_disk_is_told_apart_and_continued_to_the_last_value(tmp_path: Path) -> None:
    place, out = tmp_path / "disk", tmp_path / "out"
    for folder in (place, out):
        folder.mkdir()
    (tmp_path / "fills.py").write_text(FILLS)
    code, printed, errors = in_own_mounts(
        FILLED,
        [sys.executable, "-m", "kharness"],
        tmp_path,
        DIRECTORY=str(place),
        SAVED=str(tmp_path / "fills.py"),
        OUT=str(out),
        PYTHON=sys.executable,
    )
    assert code == 0, errors
    lines = printed.splitlines()
    assert (lines[0], lines[2], lines[-1]) == ("exit code 1", "1 run: 1 failed (disk_full)", "exit code 0")
    assert lines[3].endswith(
        f": failed: exit code 1; no space left on device, for {lines[1].split()[1][:-1]}"
    )
    steps = [
        (float(found[1]), float(found[2]))
        for found in re.finditer(
            r"iter (\d+): loss (\S+), time 1.00ms\.+\n", (out / "output.log").read_text()
        )
    ]
    journal = [record for record, _ in read_records(out / "metrics.jsonl")]
    assert [(r["global_step"], r["train_loss"]) for r in journal if r["event"] == "step"] == steps
    assert [r["global_step"] for r in counting(journal) if r["event"] == "step"][:3] == [1, 2, 3]
    assert len(steps) > 100
    assert b"\x18\n" in (out / "output.log").read_bytes()  # where the disk has cut a line off
