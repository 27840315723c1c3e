"""Options of a program's command line are the configuration of its run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Command, records
from .test_commands import TRAINS

OWN = """
import sys
from monitoring import Run

with Run("own", config={"lr": 0.5, "Width": 64}) as run:
    run.start(model={}, training={})
    for step in (1, 2):
        run.log_step(step, train_loss=1 / step)
"""


def config(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["config"]
    assert [record["config"] for record in records(run) if record["event"] == "start"][-1] == found
    return found


def test_options_of_the_command_are_the_configuration(tmp_path: Path, kharness: Command) -> None:
    def listed(*words: str) -> list[list[str]]:
        return [line.split() for line in kharness(tmp_path, "ls", *words).stdout.splitlines()]

    for name, lr in (("a", "1e-1"), ("b", "0.2")):
        program = [sys.executable, TRAINS, "--lr", lr, "--steps=3", "--fast"]
        assert kharness(tmp_path, "run", "--name", name, "--", *program).returncode == 0
    results = tmp_path / "results"
    assert config(results / "a") == {"lr": 0.1, "steps": 3, "fast": True}
    assert listed("lr>0.1", "--columns", "lr,steps") == [
        ["run", "lr", "steps"],
        ["---", "---", "-----"],
        ["b", "0.2", "3"],
        [],
        ["1", "of", "2", "runs"],
    ]
    assert [line[:4] for line in listed()[:4]] == [
        ["run", "status", "step", "lr"],
        ["---", "--------", "----", "---"],
        ["a", "complete", "3", "0.1"],
        ["b", "complete", "3", "0.2"],
    ]
    compared = kharness(tmp_path, "compare", "results/a", "results/b").stdout.splitlines()
    assert compared[-1] == "configuration: lr 0.1 -> 0.2"


def test_an_axis_is_one_option_with_those_of_other_commands(tmp_path: Path, kharness: Command) -> None:
    program = [sys.executable, TRAINS, "--steps", 2, "--lr"]
    assert kharness(tmp_path, "run", "--name", "a", "--", *program, 3).returncode == 0
    words = ["-a", "lr=1,2", "--", *program, "{lr}", "--out", "{run_dir}"]
    assert kharness(tmp_path, "matrix", *words).returncode == 0
    cell = (tmp_path / "results" / "latest").resolve() / "lr-2"
    assert config(cell) == {"steps": 2, "LR": 2}
    assert json.loads((cell / "command.json").read_text())["options"] == {"steps": 2}
    shown = kharness(tmp_path, "ls", "lr>1").stdout.splitlines()
    assert shown[0].split()[:4] == ["run", "status", "step", "lr"]
    assert [line.split()[:4] for line in shown[2:4]] == [
        ["a", "complete", "2", "3"],
        [f"{cell.parent.name}/lr-2", "complete", "2", "2"],
    ]
    compared = kharness(tmp_path, "compare", "results/a", f"results/{cell.parent.name}/lr-2").stdout
    assert compared.splitlines()[-1] == "configuration: command: nothing -> --out '{run_dir}', lr 3 -> 2"


def test_what_a_run_of_the_program_says_counts_instead_but_for_axes(
    tmp_path: Path, kharness: Command
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    program = [sys.executable, "own.py", "--width", 8, "--depth", 2, "--lr"]
    assert kharness(tmp_path, "run", "--name", "a", "--", *program, 0.1).returncode == 0
    assert config(tmp_path / "results" / "a") == {"depth": 2, "lr": 0.5, "Width": 64}
    ended = kharness(tmp_path, "matrix", "-a", "lr=0.1,0.2", "--", *program, "{lr}")
    assert ended.returncode == 0, ended.stdout
    assert config(tmp_path / "results" / "latest" / "lr-0.2") == {"depth": 2, "LR": 0.2, "Width": 64}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--api-key", "geheim", "--max-tokens", "64", "--tokenizer", "gpt2"],
            {"max_tokens": 64, "tokenizer": "gpt2"},
        ),
        (["--password", "1234", "token=abc", "--hub", "https://u:p@host/"], {}),
    ],
)
def test_a_secret_is_in_no_configuration(
    tmp_path: Path, words: list[str], expected: dict[str, object], kharness: Command
) -> None:
    program = ["print('step 1 loss 0.5')", *words]
    assert kharness(tmp_path, "run", "--name", "a", "--", sys.executable, "-c", *program).returncode == 0
    assert config(tmp_path / "results" / "a") == expected
