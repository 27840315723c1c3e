"""The next command that a single run prints can be typed letter for letter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import Command, status
from .test_commands import folder

__all__ = ["folder"]

TELLS = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["NAMED"]]))
print(f"step 1 loss {1 / len(sys.argv)}")
"""
HOSTILE = ["it's a $HOME", '{{b}} "c"', "*", "a;b|c", "--x=# y", ""]


def typed(line: str) -> list[str]:
    """Return the words that a shell makes of a line that begins with `kharness`."""
    shell = f"kharness() {{ printf '%s\\0' \"$@\"; }}; {line}"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    return ended.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    ("seed", "received", "note"),
    [
        (["--seed", "7", "trainer.seed=7"], ["--seed", "{0}", "trainer.seed={0}"], "several seeds,"),
        ([], ["--seed", "{0}"], "several seeds (if it takes --seed),"),
    ],
)
def test_several_seeds_of_a_run_are_typed_as_it_says(
    folder: Path, seed: list[str], received: list[str], note: str, kharness: Command
) -> None:
    (folder / "tells.py").write_text(TELLS)
    (folder / "my.yaml").write_text("a: {lr}\n")
    options = ["-e", "NAMED=it's $HOME", "--results", "my results", "--render", "my.yaml"]
    program = [sys.executable, "tells.py", *HOSTILE, "{my.yaml}", *seed]
    ended = kharness(folder, "run", *options, "--", *program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    graphs, report, spread, seeds = ended.stdout.splitlines()[-4:]
    assert graphs == "next: its graphs and tables as files:"
    assert typed(report) == ["report", "my results/latest"]
    assert spread == f"next: {note} which show how far they spread:"
    again = kharness(folder, *typed(seeds))
    assert again.returncode == 0, again.stdout + again.stderr
    matrix = (folder / "my results" / "latest").resolve()
    runs = [matrix / f"seed-{number}" for number in range(1, 6)]
    assert [status(run)["status"] for run in runs] == ["complete"] * 5
    plain = [word.replace("{{", "{").replace("}}", "}") for word in HOSTILE]
    for number, run in enumerate(runs, 1):
        told = json.loads((run / "output.log").read_text().splitlines()[0])
        assert told == [
            [*plain, str(run / "rendered" / "my.yaml"), *(word.format(number) for word in received)],
            "it's $HOME",
        ]
        assert (run / "rendered" / "my.yaml").read_text() == "a: {lr}\n"


def test_seeds_of_a_run_are_typed_in_the_folder_of_its_program(folder: Path, kharness: Command) -> None:
    """Also where it was continued from elsewhere."""
    (here := folder / "it's here").mkdir()
    (here / "p.py").write_text("import os, sys; sys.exit(0 if os.path.exists('repaired') else 3)\n")
    assert kharness(here, "run", "--", sys.executable, "p.py").returncode == 3
    (here / "repaired").touch()
    ended = kharness(folder, "continue", here / "results" / "latest")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seeds = ended.stdout.splitlines()[-1]
    told = typed(f'{seeds}; kharness "$PWD"')
    assert told == ["matrix", "-a", "seed=1..5", "--", sys.executable, "p.py", "--seed", "{seed}", str(here)]
