"""`kharness reproduce` of anybody's program: its command, its code, and every value that it reports."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kharness
from kharness.matrix.planning.template import Template
from monitoring.journal.bit_equal import compare
from monitoring.journal.records import read_records

from ....warm_python import WarmPython

PROGRAM = """\
import pathlib, random, sys
from model import loss
lr, seed, conf, out = float(sys.argv[1]), sys.argv[2], *map(pathlib.Path, sys.argv[3:])
out.write_text(conf.read_text())
data, noise = float(pathlib.Path("data/offset").read_text()), random.Random(seed)
clock = pathlib.Path("clock").stat().st_size
for step in range(1, 4):
    print(f"iter {step}: loss {loss(lr, step) + data + noise.random()}, time {clock}ms")
"""


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@l", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A program with a module, a file of options, and data that git does not know."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/offset").write_text("3")
    (folder / "clock").touch()
    (folder / "fit.py").write_text(PROGRAM)
    (folder / "model.py").write_text("def loss(lr, step):\n    return 1 / (lr * step)\n")
    (folder / "options.yaml").write_text("lr: {lr}\n")
    (folder / ".gitignore").write_text("data/\nclock\nresults/\n__pycache__/\n*.zip\n*.unpacked\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


Call = Callable[..., SimpleNamespace]


@pytest.fixture
def call(warm_python: WarmPython) -> Call:
    """Type `kharness WORDS` in a folder; `said` is what it prints besides the program."""

    def typed(folder: Path, *words: object) -> SimpleNamespace:
        done = warm_python.run(["-m", "kharness", *words], cwd=folder)
        of_program = ("iter ", "recorded from", "csv:")
        said = [line for line in done.stdout.splitlines() if not line.startswith(of_program)]
        return SimpleNamespace(code=done.returncode, said=said, err=done.stderr)

    return typed


FIT = ("--", sys.executable, "fit.py", "{lr}", "{seed}", "{options.yaml}", "{run_dir}/{run_name}.out")


@pytest.fixture
def cell(repository: Path, call: Call) -> Path:
    """A cell of a matrix of the program."""
    axes = ["-a", "lr=1e-1,2", "-a", "seed=7", "--render", "options.yaml"]
    made = call(repository, "matrix", *axes, *FIT)
    assert made.code == 0, made.err
    (found,) = (repository / "results/latest").resolve().glob("lr-1e-1*")
    return found


def test_a_cell_is_run_again_in_the_code_that_it_had(repository: Path, cell: Path, call: Call) -> None:
    revision = git(repository, "rev-parse", "HEAD")[:12]
    here, again = call(repository, "reproduce"), cell.with_name(f"{cell.name}_reproduced")
    assert (here.code, here.said) == (
        0,
        [
            f"of results/{cell.parent.name} the first complete run, {cell.name}",
            f"code: revision {revision}, as it is here",
            "folder: .",
            "not known: the data that the program read",
            f"run: results/{cell.parent.name}/{cell.name}_reproduced",
            f"command: {sys.executable} fit.py 1e-1 7 {again}/rendered/options.yaml {again}/{again.name}.out",
            "bit-equal: 4 records",  # three steps and the end
        ],
    ), here.err
    assert (again / f"{again.name}.out").read_text() == "lr: 1e-1\n", (
        "the value as it was given, in its own folder"
    )
    (repository / "model.py").write_text("def loss(lr, step):\n    return 0\n")
    git(repository, "commit", "--quiet", "-am", "second")
    (repository / "clock").write_text("later")  # a time is no result
    elsewhere = call(repository, "reproduce", again)
    assert elsewhere.code == 0, elsewhere.err
    assert elsewhere.said[0] == f"code: revision {revision}, in a worktree of its own"
    assert elsewhere.said[-1] == "bit-equal: 4 records"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert (repository / "data/offset").read_text() == "3", "what a worktree links to stays"


def test_a_bundle_of_changed_code_is_run_again_in_a_clone(
    repository: Path, call: Call, tmp_path: Path
) -> None:
    (repository / "model.py").write_text("def loss(lr, step):\n    return 5\n")
    words = [*FIT[1:3], 2, 7, "options.yaml", "{run_dir}/out"]
    assert call(repository, "run", "--", *words).code == 0
    assert call(repository, "bundle", "results/latest", "-o", tmp_path / "sent.kharness.zip").code == 0
    git(repository, "checkout", "--quiet", "model.py")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    shutil.copytree(repository / "data", clone / "data")
    shutil.copy(repository / "clock", clone)
    repository.rename(tmp_path / "gone")
    same = call(clone, "reproduce", tmp_path / "sent.kharness.zip")
    assert (same.code, same.said[-1:]) == (0, ["bit-equal: 4 records"]), same.err
    assert same.said[0].endswith("…, in a worktree of its own")
    assert " with changes of SHA-256 " in same.said[0]
    (clone / "data/offset").write_text("4")
    other = call(clone, "reproduce", tmp_path / "sent.kharness.zip")
    assert other.code == 3
    assert other.said[-3:-1] == [
        "bit-equal up to there: 0 records",
        "equal in all records: status, first_step, steps_done; not equal: train_loss",
    ]
    assert other.said[-1].startswith("first difference: the step record of step 1: train_loss: ")
    refused = call(tmp_path, "reproduce", tmp_path / "sent.kharness.zip")
    assert refused.code == 2
    assert refused.err.splitlines()[0].startswith("error: the code is not available: the run's revision ")
    assert refused.err.splitlines()[1].startswith(
        "hint: type it in a clone of the program's repository; ANYWAY=y"
    )


def test_a_program_outside_git_runs_again_with_the_code_that_is_here(tmp_path: Path, call: Call) -> None:
    (tmp_path / "fit.py").write_text("print('iter 1: loss 0.5')\n")
    assert call(tmp_path, "run", "--", sys.executable, "fit.py").code == 0
    refused = call(tmp_path, "reproduce")
    assert (refused.code, refused.err.splitlines()) == (
        2,
        [
            "error: the code is not available: the run was made outside a git checkout, "
            "so nobody knows its revision",
            "hint: ANYWAY=y trains with the code that is here, and compares all the same",
        ],
    )
    assert call(tmp_path, "reproduce", "ANYWAY=y").code == 0


def test_what_cannot_be_run_again_is_refused_and_leaves_nothing(
    repository: Path, cell: Path, call: Call
) -> None:
    def refused(run: Path) -> list[str]:
        before = sorted(repository.rglob("*"))
        done = call(repository, "reproduce", run)
        assert (done.code, len(done.err.splitlines())) == (2, 2), done.err
        assert sorted(repository.rglob("*")) == before
        return [line.replace(str(run), "RUN") for line in done.err.splitlines()]

    with kharness.Run(repository / "results/own", agent=False) as run:
        run.log(loss=1.0)
    assert refused(repository / "results/own") == [
        "error: RUN is not a training of this tree, and has no command that it was run by",
        "hint: kharness run -- PROGRAM records what kharness reproduce runs again",
    ]
    path = cell / "command.json"
    command = json.loads(path.read_text())
    template = command["template"]
    for words, message in [
        ([sys.executable, "gone.py"], "error: gone.py is not found"),
        (["none", "fit.py"], "error: none is not found"),
    ]:
        path.write_text(json.dumps({**command, "template": {**template, "words": words}}))
        assert refused(cell)[0] == message
    script = str(repository / "fit.py")
    changed = {**command, "argv": [sys.executable, script], "template": template}
    path.write_text(json.dumps(changed))
    (repository / "model.py").write_text("")
    assert refused(cell)[0] == (
        f"error: the code is not available: {script} has changed since, and is named by its whole path"
    )


def test_a_template_with_its_values_can_be_filled_once_more() -> None:
    template = Template(
        ["{{x}}", "--lr={LR}", "{run_dir}/a", "--fast{fast?}", "{c.yaml}"],
        files={"c.yaml": ""},
        resume=["{run_name}"],
    )
    of_run = template.with_values({"LR": "{1}", "fast": "n"})
    assert of_run.words == ["{{x}}", "--lr={{1}}", "{run_dir}/a", "{c.yaml}"]
    words, _ = of_run.filled({"run_dir": "/r", "c.yaml": "/c"})
    assert (words, of_run.resume) == (["{x}", "--lr={1}", "/r/a", "/c"], ["{run_name}"])


def test_values_are_the_same_however_they_were_grouped(tmp_path: Path) -> None:
    steps: dict[str, list[dict[str, Any]]] = {
        "one": [{"loss": 1.0, "acc": 0.5}, {"loss": 2.0}, {"acc": 0.25}],
        "other": [{"acc": 0.5}, {"loss": 1.0}, {"acc": 0.25, "loss": 2.0}],
    }
    for name, records in steps.items():
        with kharness.Run(tmp_path / name, agent=False) as run:
            for number, values in enumerate(records):
                run.log(values, step=1, step_ms=number)
    compared = compare(tmp_path / "one", tmp_path / "other")
    assert (compared.difference, compared.equal) == ("", 4)  # step 1 three times, for its marks, and the end
    assert len([record for record, _ in read_records(tmp_path / "one/metrics.jsonl")]) == 5
