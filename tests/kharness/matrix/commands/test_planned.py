"""`kharness matrix` plans which runs exist already, their order, and when it stops starting more."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

from kharness.matrix.planning.cells import Cell, blocked
from kharness.pages.matrix import seeds_command
from kharness.report.overview.next_runs import matrix_command
from kharness.report.summary import collect

from ...report.writing.test_html import Page
from ..conftest import Command
from .test_commands import TRAINS

NEEDS = """
import pathlib, sys
if not pathlib.Path("repaired").exists():
    print("usage: needs.py\\nneeds.py: error: unrecognized arguments:", *sys.argv[1:], file=sys.stderr)
    sys.exit(2)
print("step 3 loss", 0.1 * float(sys.argv[2]))
"""


def test_command_that_fails_alike_in_its_first_runs_is_started_no_more(
    tmp_path: Path, kharness: Command
) -> None:
    (tmp_path / "needs.py").write_text(NEEDS)
    words = ["-a", "x=1..2", "-a", "seed=1..3", "--", sys.executable, "needs.py", "--xx", "{x}", "{seed}"]
    ended = kharness(tmp_path, "matrix", *words)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    where = f"results/{(tmp_path / 'results' / 'latest').resolve().name}"
    again = f"kharness continue {where}"
    told = "the first 3 runs failed alike, so no other is started. A mistake in the command: type it anew; "
    assert f"{told}in the program: {again}; none: {again} --keep-going\n" in ended.stdout
    assert ended.stdout.count("  | usage: needs.py\n") == 1
    reason = r"exit code 2: needs\.py: error: unrecognized arguments: --xx \d \d"
    shown = kharness(tmp_path, "status").stdout.splitlines()
    assert shown[:2] == [
        f"matrix {where}: not running; resume with: {again}",
        "6 runs: 3 pending, 3 failed (refused)",
    ]
    assert re.fullmatch(rf"  x-\d_seed-\d and 2 others alike: failed: {reason}", shown[2])
    assert shown[3:] == ["  not started, since the first 3 failed alike: 3 runs"]
    ended = kharness(tmp_path, "continue", "--keep-going")
    assert ended.returncode == 3
    assert "6 runs: 6 failed (refused)\n" in kharness(tmp_path, "status").stdout
    (tmp_path / "repaired").touch()
    ended = kharness(tmp_path, "continue", "--jobs", 2)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    at_end = kharness(tmp_path, "status").stdout
    assert "6 runs: 6 complete\n" in at_end
    assert "  x-2_seed-1: complete, from scratch after a refusal (attempt " in at_end


def test_runs_of_another_command_are_not_there_already(tmp_path: Path, kharness: Command) -> None:
    def matrix(seed: str, *options: str) -> list[str]:
        program = [sys.executable, TRAINS, "--lr", "{lr}", seed, "{seed}", "--steps", 1]
        ended = kharness(tmp_path, "matrix", "-a", "lr=1,2", "-a", "seed=1", *options, "--", *program)
        return [line for line in ended.stdout.splitlines() if line.startswith("note: ")]

    matrix("--sed")  # misspelled
    assert matrix("--seed", "--dry-run") == []
    matrix("--seed")
    where = f"results/{(tmp_path / 'results' / 'latest').resolve().name}"
    again = f"kharness summary {where} compares them; here all are trained again"
    has = f"note: {where} has these runs already, all complete: {again}"
    assert matrix("--seed", "--dry-run") == [has]


def test_command_that_adds_seeds_works_when_it_is_pasted(tmp_path: Path, kharness: Command) -> None:
    """For a matrix to which `continue` adds none, since the names of its runs have no seed."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "c.json").write_text('{"lr": {lr}}')
    (tmp_path / "known.txt").write_text("lr-9  # never\n")
    options = ["--include", "lr=3", "--exclude", "lr=2", "--metric", "val_loss", "--render", "conf/c.json"]
    options += ["--resume-with", "--out '{run_dir}/a b'", "-e", "A=b {lr}", "--hook", "--machine-monitor"]
    options += ["--pattern", r"e (?P<err>\d+)", "--project", "my own", "--quarantine", "known.txt"]
    program = [
        sys.executable,
        TRAINS,
        "--lr",
        "{lr}",
        "--seed",
        "{seed}",
        "--steps",
        1,
        "--out",
        "{c.json} a",
    ]
    axes = ["-a", "lr=1,2", "-a", "seed=7"]
    ended = kharness(tmp_path, "matrix", *axes, *options, "--better", "err=down", "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    matrix = (tmp_path / "results" / "latest").resolve()
    plan = json.loads((matrix / "matrix.json").read_text())
    command = shlex.split(seeds_command(matrix, plan, 3))
    assert command == shlex.split(matrix_command(collect(matrix), "7..9"))
    again = kharness(tmp_path, *command[1:])
    assert again.returncode == 0, again.stdout + again.stderr
    longer = json.loads((tmp_path / "results" / "latest" / "matrix.json").read_text())
    names = [f"lr-{lr}_seed-{seed}" for lr in (1, 3) for seed in (7, 8, 9)]
    assert [cell["name"] for cell in longer["cells"]] == names
    assert (longer["template"], longer["settings"]) == (plan["template"], plan["settings"])


def test_report_names_the_command_that_finishes_a_matrix(tmp_path: Path, kharness: Command) -> None:
    program = ["--", sys.executable, "-c", "print('step 1 loss 1'); raise SystemExit({x})"]
    assert kharness(tmp_path, "matrix", "-a", "x=0,1", "--results", "my runs", *program).returncode == 3
    (page,) = (tmp_path / "my runs").glob("test_matrix_*/report.html")
    texts = Page(page.read_text()).text
    command = texts[texts.index("To finish 1 of 2 runs:") + 1]
    assert command == f"kharness continue 'my runs/{page.parent.name}'"
    assert kharness(tmp_path, *shlex.split(command)[1:]).returncode == 3


def test_runs_are_in_blocks_of_seeds(tmp_path: Path, kharness: Command) -> None:
    program = ["--", sys.executable, TRAINS, "--lr", "{lr}", "--seed", "{seed}", "--steps", 1]
    ended = kharness(tmp_path, "matrix", "-a", "lr=1,2", "-a", "seed=1..3", *program)
    plan = json.loads((tmp_path / "results" / "latest" / "matrix.json").read_text())
    assert plan["order"] == blocked([Cell(one["name"], one["values"], "trains") for one in plan["cells"]])
    assert re.findall(r"^\[./6\] (.*)", ended.stdout, re.MULTILINE) == plan["order"]


def test_comparison_tells_the_words_that_differ(tmp_path: Path, kharness: Command) -> None:
    def run(*words: object) -> str:
        assert kharness(tmp_path, "run", "--", sys.executable, TRAINS, *words).returncode == 0
        return f"results/{(tmp_path / 'results' / 'latest').resolve().name}"

    def told(a: str, b: str) -> str:
        return kharness(tmp_path, "compare", a, b).stdout.splitlines()[-1]

    first, second, third = run("--lr", 1), run("--lr", 2), run("--lr", 1, "--fast", "--out", "{run_dir}")
    assert told(first, second) == "configuration: lr 1 -> 2"
    assert told(first, third) == ("configuration: command: nothing -> --out '{run_dir}', fast - -> True")
    assert told(first, first) == "configuration: the same"
    listed = kharness(tmp_path, "ls", env={**os.environ, "COLUMNS": "999"}).stdout.splitlines()[2:5]
    shown = [re.sub(" +", " ", line) for line in listed]
    ends = ("1 - … 0.", "2 - … 0.", f"1 True … --out {tmp_path / third} 0.")
    for line, end in zip(shown, ends, strict=True):
        assert f" complete 10 {end}" in line
