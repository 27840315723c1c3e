"""A model outside of the tree: `make M=DIR` joins its options, presets and drop-ins, and trains it."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kharness
from kharness import cli
from kharness.config.assignment import Origin
from kharness.config.errors import ConfigError
from kharness.config.make.targets import run as configure
from kharness.config.make.variables import check_call, given
from kharness.config.tree import Tree
from kharness.training import optimizers
from kharness.training.optimizers import OPTIMIZERS
from monitoring.errors import UserError
from monitoring.outside import enter

from .warm_python import WarmPython

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "mymodel"
SOURCE = 'source "lib/kharness/Kconfig"\n'
EXTENDING = (ROOT / "docs/extending.md").read_text()
PAGE = (ROOT / "docs/out-of-tree.md").read_text()
PROGRAM = """\
import sys
rate = float(sys.argv[1])
for step in range(1, 4):
    print(f"step {step} loss {rate / step}")
"""

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(warm_torch: WarmPython) -> Script:
    """Runs scripts/NAME with its words, as the targets of make do."""

    def call(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return warm_torch.run([ROOT / "scripts" / name, *words], cwd=ROOT)

    return call


@pytest.fixture
def model(tmp_path: Path, script: Script) -> Path:
    """Model folder written by new-model, with a name that no package can have."""
    folder = tmp_path / "Two spirals"
    done = script("new_model.py", f"M={folder}")
    assert done.returncode == 0
    calls = [f"  make M='{folder}'{target}" for target in ("", " test_matrix", " check")]
    assert done.stdout.splitlines()[-4:] == ["next:", *calls]
    return folder


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Callable[[str], Tree]]:
    """The tree with a copy of the example that has more in its Kconfig, before the source line."""

    def load(more: str) -> Tree:
        folder = tmp_path / "mymodel"
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        text = (EXAMPLE / "Kconfig").read_text()
        (folder / "Kconfig").write_text(text.replace(SOURCE, more + SOURCE))
        enter(folder)
        return Tree.load(ROOT)

    yield load
    enter(None)


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def start_of(run: Path) -> dict[str, Any]:
    with (run / "metrics.jsonl").open() as journal:
        return next(record for record in map(json.loads, journal) if record["event"] == "start")


def test_new_model_is_a_page_and_passes_its_test(model: Path, warm_torch: WarmPython) -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in model.iterdir() if path.is_file()}
    assert sorted(lines) == [".gitignore", "Kconfig", "__init__.py", "test_two_spirals.py", "train.py"]
    assert lines["Kconfig"] <= 30
    assert lines["train.py"] <= 100
    assert "mymodel" not in "".join(path.read_text().lower() for path in model.rglob("*") if path.is_file())
    done = warm_torch.run([ROOT / "scripts/check.py", f"M={model}"], cwd=ROOT)
    assert re.search(r"^=+ 1 passed in ", done.stdout, flags=re.M), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch", "there is a package torch already"),
        ("3d", "'3d' names no Python package"),
        ("lenet5", "there is a package lenet5 already"),
        ("", "M is not given"),
        ("full", "{folder} is not empty"),
    ],
)
def test_new_model_refuses_a_name_or_a_folder(
    name: str, message: str, tmp_path: Path, script: Script
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    folder = tmp_path / name
    done = script("new_model.py", *[f"M={folder}"] * bool(name))
    assert done.stderr.splitlines()[0] == f"error: {message.format(folder=folder)}"
    assert (done.returncode, done.stderr.splitlines()[1][:5]) == (2, "hint:")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "mine"]


def test_it_trains_there_and_is_reproduced_from_both_revisions(model: Path, script: Script) -> None:
    git(model, "init", "-q")
    git(model, "add", ".")
    git(model, "commit", "-qm", "first")
    done = script("train.py", f"M={model}", "NUM_EPOCHS=1", "TWO_SPIRALS_WIDTH=9")
    assert done.returncode == 0, done.stdout + done.stderr
    changed = "CONFIG_NUM_THREADS=1 CONFIG_NUM_EPOCHS=1 CONFIG_TWO_SPIRALS_WIDTH=9"
    repeated = f"test_matrix {changed} CONFIG_MATRIX_AXES=SEED=1..5"
    assert f"  make M='{model}' {repeated}" in done.stdout.splitlines()
    (run,) = kharness.runs(model / "results")
    assert (run.status, run.config["MODEL"], run.config["TWO_SPIRALS_WIDTH"]) == (
        "complete",
        "two_spirals",
        9,
    )
    assert (model / ".config").exists()
    start = start_of(run.directory)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=model, capture_output=True, text=True, check=True)
    assert start["model_git"] == {"revision": head.stdout.strip(), "dirty": False, "diff_sha256": None}
    here = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert start["git"]["revision"] == here.stdout.strip()
    inspected = script("inspect_batch.py", f"M={model}", "STEP=3")
    assert (inspected.returncode, inspected.stdout.splitlines()[-1].split()[0]) == (0, "64")
    # what is there now would train something else
    (model / "train.py").write_text("raise SystemExit('changed')\n")
    again = script("reproduce.py", f"M={model}", f"RUN={run.directory}")
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"model: revision {head.stdout[:12]}, in a worktree of its own\n" in again.stdout
    assert again.stdout.splitlines()[-1].startswith("bit-equal: ")
    without = script("reproduce.py", f"RUN={run.directory}")
    assert without.stderr == (
        f"error: {run.directory.resolve()} trained a model outside of this tree\n"
        "hint: give its folder: M=DIR\n"
    )
    elsewhere = script("test_rerun.py", f"TARGET={run.directory}")
    assert elsewhere.stderr == (
        "error: MODEL=two_spirals: there is no two_spirals/train.py\n"
        "hint: one outside of the tree is given by its folder: M=DIR\n"
    )


def test_any_program_is_trained_by_its_command(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PATH must have `python`: Debian has one in an activated environment alone."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    folder = tmp_path / "program"
    (folder / "defconfigs").mkdir(parents=True)
    command = re.search(r"^config COMMAND\n.*?(?=^```)", PAGE, flags=re.M | re.S)
    assert command is not None
    own = (EXAMPLE / "Kconfig").read_text().replace(SOURCE, f"{command[0]}\n{SOURCE}")
    own = own.replace("--rate {mymodel_rate} --seed {seed} --out", "{mymodel_width}")
    (folder / "Kconfig").write_text(own)
    (folder / "fit.py").write_text(PROGRAM)
    preset = 'CONFIG_MATRIX_AXES="MYMODEL_WIDTH=2|4"\nCONFIG_REPORT_METRIC="train_loss"\n'
    preset += "# CONFIG_LAUNCHER_LOCAL_FORK_SERVER is not set\nCONFIG_MATRIX_SNAPSHOT=y\n"
    (folder / "defconfigs" / "default").write_text(preset)
    done = script("test_matrix.py", f"M={folder}", "CONFIG_REPORT_GRAPHS=n")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = kharness.runs(folder / "results")
    assert [(run.config["MYMODEL_WIDTH"], run.last["train_loss"]) for run in runs] == [(2, 2 / 3), (4, 4 / 3)]
    matrix = runs[0].directory.parent.resolve()
    assert json.loads((matrix / "matrix.json").read_text())["model_git"] is None
    (attempt,) = json.loads((runs[0].directory / "run.json").read_text())["attempts"]
    assert attempt["cwd"] == f"{matrix}/.sources/.model/program"
    copied = sorted(path.name for path in (matrix / ".sources/.model/program").iterdir())
    assert copied == ["Kconfig", "defconfigs", "fit.py"]
    for value, message in [
        ("python fit.py {width}", "{width} is not an option"),
        ("python fat.py", "fat.py is not found"),
        ("python 'fit.py", "COMMAND=python 'fit.py: No closing quotation"),
    ]:
        refused = script("train.py", f"M={folder}", f"COMMAND={value}")
        assert (refused.returncode, refused.stderr.splitlines()[0]) == (2, f"error: {message}")
    assert len(list((folder / "results").iterdir())) == 2  # the matrix, and `latest`


def test_options_of_the_tree_are_not_defined_again(joined: Callable[[str], Tree], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        joined('config SEED\n\tint "Mine"\n\n')
    other = next(
        number
        for number, line in enumerate((ROOT / "lib/kharness/Kconfig").read_text().splitlines(), 1)
        if line == "config SEED"
    )
    own = len((EXAMPLE / "Kconfig").read_text().splitlines())
    assert str(error.value) == (
        f"SEED is defined twice: {tmp_path}/mymodel/Kconfig:{own} and lib/kharness/Kconfig:{other}"
    )


def test_a_folder_has_to_source_the_tree(tmp_path: Path) -> None:
    for text, what in [(None, "is not there"), ("", "does not source the tree's")]:
        if text is not None:
            (tmp_path / "Kconfig").write_text(text)
        with pytest.raises(ConfigError) as error:
            given([f"M={tmp_path}"], {}, "train", root=ROOT)
        assert str(error.value) == f"M={tmp_path}: {tmp_path}/Kconfig {what}"


def test_own_options_are_known_and_what_is_of_the_checkout_alone_takes_none() -> None:
    read = given([f"M={EXAMPLE}", "MYMODEL_WIDTH=7"], {}, "train", root=ROOT)
    assert read == {"M": str(EXAMPLE), "CONFIG_MYMODEL_WIDTH": "7"}
    with pytest.raises(ConfigError, match=r"^MYMODEL_WIDE=7 means nothing to make train$") as error:
        given([f"M={EXAMPLE}", "MYMODEL_WIDE=7"], {}, "train", root=ROOT)
    assert error.value.hint == "did you mean MYMODEL_WIDTH?"
    environ = {"KHARNESS_GOALS": "docs", "KHARNESS_MAKE_VARS": "M", "M": str(EXAMPLE)}
    with pytest.raises(ConfigError, match=f"^M={EXAMPLE} means nothing to make docs$") as error:
        check_call(environ, ROOT)
    assert error.value.hint == "leave it out: that is about this checkout alone"


def test_presets_are_its_own_and_those_that_span_models(
    joined: Callable[[str], Tree], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined("")
    folder = tmp_path / "mymodel"
    configure(["list-defconfigs", f"M={folder}"], ROOT)
    said = capsys.readouterr().out
    assert " ".join(said.split()).endswith(f"Run: `make M={folder} test_matrix`")
    listed = re.findall(r"^(\S.*)/$|^  (\w+)$", said, flags=re.M)
    assert [title or name for title, name in listed] == [
        *("Any model, in defconfigs", "everything", "optimizers", "pruning"),
        *(f"My model, in {folder}/defconfigs", "default"),
    ]
    (folder / "defconfigs" / "optimizers").touch()
    with pytest.raises(ConfigError) as error:
        configure(["defconfig", f"M={folder}", "DEFCONFIG=optimizers"], ROOT)
    assert error.value.hint == f"say DEFCONFIG=defconfigs/optimizers or {folder}/defconfigs/optimizers"
    configure(["configwhy", f"M={folder}", "SYMBOL=NUM_EPOCHS"], ROOT)
    assert capsys.readouterr().out.splitlines()[1:2] == ["NUM_EPOCHS=5, because MODEL_MYMODEL"]


def test_model_reads_data_sets_of_the_tree(tmp_path: Path) -> None:
    folder = tmp_path / "mymodel"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (EXAMPLE / "Kconfig").read_text()
    prompt = '\tbool "My model"\n'
    assert prompt in text
    (folder / "Kconfig").write_text(text.replace(prompt, f"{prompt}\tselect MODEL_READS_DIGITS\n"))
    enter(folder)
    try:
        tree = Tree.load(ROOT)
    finally:
        enter(None)
    assert (tree.resolve([]).values["MODEL"], tree.resolve([]).values["DATASET"]) == (
        "mymodel",
        "mnist-subset",
    )
    full = tree.resolve(list(tree.assignments("DATASET", "mnist", Origin("test"))))
    assert (full.values["MODEL"], full.values["DATASET"]) == ("mymodel", "mnist")
    with pytest.raises(ConfigError) as error:
        tree.resolve(list(tree.assignments("DATASET", "shakespeare", Origin("test"))))
    assert error.value.hint == "here DATASET is one of mnist-subset, mnist"


@pytest.mark.skipif("rmsprop" in OPTIMIZERS.names, reason="the example is in the tree, pasted")
def test_drop_ins_join_by_the_same_rules(
    joined: Callable[[str], Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder joins the package for good; other tests know the package without it.
    monkeypatch.setattr(optimizers, "__path__", list(optimizers.__path__))
    entry = re.search(r"^choice OPTIMIZER_CHOICE\n.*?(?=^```)", PAGE, flags=re.M | re.S)
    module = re.search(
        r"^```python\n# lib/kharness/training/(optimizers/rmsprop.py)\n(.*?)^```",
        EXTENDING,
        flags=re.M | re.S,
    )
    assert entry is not None
    assert module is not None
    tree = joined(f"{entry[0]}\n")
    file = tmp_path / "mymodel" / module[1]
    file.parent.mkdir()
    file.write_text(module[2])
    asked = [
        *tree.assignments("OPTIMIZER", "rmsprop", Origin("test")),
        *tree.assignments("OPTIMIZER_RMSPROP_ALPHA", "0.5", Origin("test")),
    ]
    own = copy.copy(OPTIMIZERS)
    for found in ("_modules", "_defaults"):
        vars(own).pop(found, None)
    assert own.options("rmsprop", tree.resolve(asked).values).alpha == 0.5
    file.with_name("adamw.py").write_text(module[2])
    vars(own).pop("_modules")
    with pytest.raises(UserError) as error:
        own.load("adamw")
    assert str(error.value) == (
        f"optimizer adamw is defined twice: {file.parent}/adamw.py"
        f" and {ROOT}/lib/kharness/training/optimizers/adamw.py"
    )


def test_kharness_leaves_its_results_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda program, words: called.append(words))
    monkeypatch.chdir(tmp_path)
    for words in (["train", "M=m"], ["train"]):
        cli.make(words)
    front = ["make", "--no-print-directory", "-C", str(ROOT), "train"]
    assert called == [[*front, "M=m"], [*front, f"O={tmp_path}"]]
