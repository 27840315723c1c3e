"""The Makefile: one command per recipe, every target phony, nothing of the user's reaches a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kharness.config.make.known_variables import TARGETS


@pytest.fixture(scope="module")
def makefile(root: Path) -> str:
    return (root / "Makefile").read_text()


def make(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=root, text=True, capture_output=True, check=False)


def database(root: Path) -> dict[str, str]:
    """target -> its paragraph in make's own data base."""
    text = make(root, "-qpRr", "no-such-target").stdout
    body = text[text.index("# Files") :]
    paragraphs = (paragraph.lstrip("\n") for paragraph in body.split("\n\n"))
    return {match[1]: text for text in paragraphs if (match := re.match(r"([\w.%/-]+):", text))}


def test_a_recipe_is_one_command(makefile: str) -> None:
    makefile = makefile.replace("\\\n", " ")
    recipes = re.findall(r"^[^\t\n#].*:.*\n((?:\t.*\n)+)", makefile, flags=re.M)
    assert recipes, "no recipe found"
    long = [recipe for recipe in recipes if recipe.count("\n") != 1 or re.search(r"[;&|`]|\$\$", recipe)]
    assert long == [], "a recipe is one command; put the program into scripts/"


def test_every_target_without_a_file_is_phony(root: Path) -> None:
    files = (".DEFAULT", ".ready", ".ready-config", ".ready-dashboard", ".ready-for-tests", "Makefile")
    targets = {
        name: text
        for name, text in database(root).items()
        if "#  recipe to execute" in text or "#  commands" in text
    }
    assert {"train", "test_matrix", "defconfig", "defconfig-default"} <= set(database(root))
    loose = [
        name
        for name, text in targets.items()
        if Path(name).name not in files and "%" not in name and "Phony target" not in text
    ]
    assert loose == [], "a file of this name would disable the target; add it to .PHONY"


def test_every_target_has_a_help_comment(root: Path, makefile: str) -> None:
    documented = set(re.findall(r"^([\w-]+):[^#\n]*##", makefile, flags=re.M))
    phony = {name for name, text in database(root).items() if "Phony target" in text}
    internal = {"FORCE", "tests", "variables", "verify-environment"} | {
        name for name in phony if name.startswith("defconfig-")
    }
    assert phony - internal == documented


def test_every_target_has_an_entry_in_the_table_of_variables(root: Path, makefile: str) -> None:
    documented = set(re.findall(r"^(?:# )?([\w<>-]+):[^#\n]*##", makefile, flags=re.M))
    assert documented == set(TARGETS), "say in make_targets.py what the target reads"


def test_every_target_comes_after_the_check_of_the_variables(root: Path) -> None:
    rules = database(root)
    before = {
        name: re.split(r"[\s|]+", text.splitlines()[0].partition(":")[2].strip())
        for name, text in rules.items()
    }

    def checked(name: str) -> bool:
        return name == "variables" or any(map(checked, filter(None, before.get(name, []))))

    phony = {name for name, text in rules.items() if "Phony target" in text}
    assert [name for name in phony - {"FORCE"} if not checked(name)] == []


TOUCH = "$(shell touch marker)"
SPELLED = "$(subst D,$$,aD(shell touch marker))"  # make's own expansion makes a$(shell touch marker) of it


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["help", f"v={TOUCH}"], f"v={TOUCH} means nothing to make help", "make help reads ALL, O"),
        (["help", f"1={TOUCH}"], "'1' is not the name of a variable", "names are letters"),
        (
            ["help", f"override={TOUCH}"],
            f"override={TOUCH} means nothing to make help",
            "make help reads ALL, O",
        ),
        (["help", f"define={TOUCH}"], f"define={TOUCH} means nothing to make help", "make help reads ALL, O"),
        (
            ["help", f"{SPELLED}=1"],
            "'a$(shell touch marker)' is not the name of a variable",
            "names are letters",
        ),
        (["help", "$(subst a,:,xay)=1"], "'x:y' is not the name of a variable", "names are letters"),
        (["help", "$(subst a,#,xay)=1"], "'x#y' is not the name of a variable", "names are letters"),
        (["help", "$(subst a,=,xay)=1"], "'x=y' is not the name of a variable", "names are letters"),
        (["help", "$(subst a, ,xay)=1"], "'x y' is not the name of a variable", "names are letters"),
        (["help", "a'b=1"], '"a\'b" is not the name of a variable', "names are letters"),
        (
            ["help", f".DEFAULT_GOAL={TOUCH}"],
            "'.DEFAULT_GOAL' is not the name of a variable",
            "names are letters",
        ),
        (["help", f".VARIABLES={TOUCH}"], "'.VARIABLES' is not the name of a variable", "names are letters"),
        (
            ["help", "MAKECMDGOALS=train"],
            "MAKECMDGOALS=train means nothing to make train",
            "make train reads",
        ),
        (["a b=1"], "'b=1' is not a variable", "write NAME=value, and quotes around all of it"),
        (["a#b=1"], "'a#b=1' is not a variable", "write NAME=value, and quotes around all of it"),
        (["a:b=1"], "'a:b=1' is not a variable", "write NAME=value, and quotes around all of it"),
        (["tset_matrix"], "unknown target 'tset_matrix'", "did you mean test_matrix?"),
        (["tests"], "unknown target 'tests'", "did you mean check?"),
        (["help", "SEEDS=3"], "SEEDS=3 means nothing to make help", "make help reads ALL, O"),
    ],
)
def test_what_nothing_reads_is_refused_before_anything_runs(
    root: Path, words: list[str], error: str, hint: str
) -> None:
    done = make(root, *words)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, (root / "marker").exists()) == (2, "", False)
    assert (lines[0].startswith(f"error: {error}"), lines[1].startswith(f"hint: {hint}")) == (True, True), (
        lines
    )


@pytest.mark.parametrize(
    "own", ["given", "python", "setup", "setup_tests", "config_targets", "presets", "shell_characters"]
)
def test_the_makefiles_own_variables_cannot_be_replaced(root: Path, own: str) -> None:
    assigned = re.findall(rf"^override {own} :=", (root / "Makefile").read_text(), flags=re.M)
    done = make(root, f"{own}=touch marker; true", "list-defconfigs")
    assert assigned
    assert (done.returncode, done.stdout, (root / "marker").exists()) == (2, "", False)
    assert done.stderr.startswith(
        f"error: {own}=touch marker; true means nothing to make list-defconfigs\nhint: "
    )


def test_every_own_variable_of_the_makefile_is_protected(makefile: str) -> None:
    loose = re.findall(r"^(?!override )(?:export )?([\w.]+) *(?:\?=|:=|=)", makefile, flags=re.M)
    assert loose == ["PYTHON", "VENV"], "begin the line with override"


def test_variables_in_makeflags_of_the_environment_are_treated_alike(root: Path) -> None:
    environment = {**os.environ, "MAKEFLAGS": "v=$$(shell\\ touch\\ marker)"}
    done = subprocess.run(
        ["make", "help"], cwd=root, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: v=$(shell touch marker) means nothing to make help\n")
    assert not (root / "marker").exists()


@pytest.mark.parametrize(
    "words", [["V=1"], ["PYTHON=python3"], ["VENV=.venv"], ["O=x"], ["CUDA_VISIBLE_DEVICES=0"]]
)
def test_variables_of_make_and_of_the_environment_are_taken(root: Path, words: list[str]) -> None:
    done = make(root, "help", *words)
    assert (done.returncode, done.stderr) == (0, "")


def test_paths_of_the_environment_are_not_expanded(root: Path) -> None:
    environment = {**os.environ, "VENV": TOUCH}
    done = subprocess.run(
        ["make", "help"], cwd=root, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert f"VENV must be one path without spaces or shell characters, not: {TOUCH}" in done.stderr
    assert not (root / "marker").exists()


def test_scripts_named_in_recipes_exist(root: Path, makefile: str) -> None:
    named = set(re.findall(r"scripts/\w+\.py", makefile))
    assert sorted(name for name in named if not (root / name).is_file()) == []


@pytest.mark.parametrize(
    "variable", ["TRACKER", "MODEL", "DEFCONFIG", "CONFIG_DATA_DIR", "O", "RUN", "SYMBOL"]
)
@pytest.mark.parametrize(
    "value",
    ["x; touch marker", "$(shell touch marker)", "`touch marker`", "$$(touch marker)", "'; touch marker; '"],
)
def test_a_value_never_reaches_a_shell(root: Path, tmp_path: Path, variable: str, value: str) -> None:
    """Make hands the value over letter for letter in the environment of a recipe."""
    probe = tmp_path / "probe.mk"
    text = (root / "Makefile").read_text() + "\n.PHONY: probe\nprobe:\n\t@printenv $(NAME)\n"
    probe.write_text(text)
    done = make(tmp_path, "-f", str(probe), "probe", f"{variable}={value}", f"NAME={variable}")
    assert done.stdout == value + "\n", done.stderr
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", ["VENV", "PYTHON"])
def test_a_path_that_is_part_of_a_command_must_be_plain(root: Path, name: str) -> None:
    done = make(root, f"{name}=x; touch marker", "help")
    assert done.returncode == 2
    assert f"{name} must be one path without spaces or shell characters" in done.stderr
    assert not (root / "marker").exists()


LOCKS = tuple(f"requirements/{part}.txt" for part in ("config", "dashboard", "run", "test", "torch", "wandb"))


@pytest.mark.parametrize(
    ("goals", "stamp"),
    [
        (["help"], ""),
        (["menuconfig"], ".ready-config"),
        (["defconfig-pruning", "olddefconfig"], ".ready-config"),
        (["gputop", "SIMULATE=4"], ".ready-dashboard"),
        (["watch", "METRIC=val_loss"], ".ready-dashboard"),
        (["defconfig", "train"], ".ready"),
    ],
)
def test_a_fresh_clone_installs_only_what_the_call_needs(
    root: Path, tmp_path: Path, goals: list[str], stamp: str
) -> None:
    for name in ("Makefile", "scripts/environment.py", *LOCKS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "pyproject.toml").touch()
    done = make(tmp_path, "-n", *goals)
    assert re.findall(r"create \S+/(\.ready\S*)", done.stdout) == ([stamp] if stamp else [])


@pytest.mark.parametrize(("made_in", "again"), [("{}/.venv", []), ("/elsewhere/.venv", [".ready"])])
def test_an_environment_that_was_made_elsewhere_is_set_up_again(
    root: Path, tmp_path: Path, made_in: str, again: list[str]
) -> None:
    ours = tmp_path / "mein Projekt, ü"
    for name in ("Makefile", *LOCKS):
        (ours / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, ours / name)
    (ours / "pyproject.toml").touch()
    (ours / ".venv").mkdir()
    made = f"command = /usr/bin/python3 -m venv --without-pip {made_in.format(ours)}"
    (ours / ".venv/pyvenv.cfg").write_text(f"home = /usr/bin\n{made}\n")
    newest = max(path.stat().st_mtime for path in ours.rglob("*")) + 1
    (ours / ".venv/.ready").touch()
    os.utime(ours / ".venv/.ready", (newest, newest))
    done = make(ours, "-n", "status")
    assert re.findall(r"create \.venv/(\.ready\S*)", done.stdout) == again
    assert done.stdout.endswith(".venv/bin/python -m kharness.quiet scripts/status.py\n")


@pytest.mark.parametrize(
    ("made_by", "folder"), [("", ".venv-{}"), ("3.9.18", ".venv-{}"), ("{}.99", ".venv")]
)
def test_a_python_has_an_environment_of_its_own(
    root: Path, tmp_path: Path, made_by: str, folder: str
) -> None:
    """PYTHON= leaves the .venv of another version as it is."""
    version = ".".join(map(str, sys.version_info[:2]))
    for name in ("Makefile", "scripts/environment.py", *LOCKS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "pyproject.toml").touch()
    if made_by:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv/pyvenv.cfg").write_text(f"home = /usr\nversion = {made_by.format(version)}\n")
    done = make(tmp_path, "-n", "check", f"PYTHON={sys.executable}")
    venv = folder.format(version)
    assert done.stdout.splitlines() == [
        f"PYTHONPATH=lib {sys.executable} -S -m kharness.quiet scripts/check_make_call.py",
        f"PYTHONPATH=lib {sys.executable} scripts/environment.py create {venv}/.ready run",
        f"PYTHONPATH=lib {sys.executable} scripts/environment.py create {venv}/.ready-for-tests test wandb",
        f"{venv}/bin/python -m kharness.quiet scripts/check.py",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (["CONFIG_LENET5_QUICK=maybe"], "LENET5_QUICK=maybe is not a bool\nhint: its value is: y or n"),
        (["defconfig", "DEFCONFIG=prunign"], "unknown preset 'prunign'\nhint: did you mean pruning?"),
        (["defconfig-prunign"], "unknown preset 'prunign'\nhint: did you mean pruning?"),
        (
            ["test_matrix", "SCHEDULE=cosine,cosin"],
            "SCHEDULE=cosin is not one of constant, cosine, onecycle, stable\nhint: did you mean cosine?",
        ),
        (
            ["test_matrix", "MATRIX_AXES=augment=@none"],
            "MATRIX_AXES: none: no such file or directory\nhint: check the path, and that you may read it",
        ),
        (
            ["test_matrix", "BATCH_SIZE=0,64"],
            "BATCH_SIZE=0|64: BATCH_SIZE=0 is outside 1..65536\nhint: give a value from 1 to 65536",
        ),
        (
            ["NUM_EPOCHS=100001"],
            "NUM_EPOCHS=100001 is outside 0..100000\nhint: give a value from 0 to 100000",
        ),
        (
            ["GPT2_WIDTH=4"],
            "GPT2_WIDTH=4 is outside 8..65536\nhint: give a value from 8 to 65536",
        ),
        (
            ["test_matrix", "SEED=1,2", "MATRIX_AXES=OPTIMIZER=sgd|adam", "FILTER=OPTIMIZER=adma"],
            "FILTER=OPTIMIZER=adma matches none of 4 cells\n"
            "hint: the axes are OPTIMIZER, SEED; a cell is called optimizer-sgd_seed-1",
        ),
        (
            ["configwhy", "SYMBOL=LR"],
            "LR: unknown symbol\nhint: did you mean LEARNING_RATE?",
        ),
        (
            ["M=examples/mymodel", "MYMODEL_WIDHT=8"],
            "MYMODEL_WIDHT=8 means nothing to make train\nhint: did you mean MYMODEL_WIDTH?",
        ),
        (
            ["M=examples/mymodel", "MYMODEL_WIDTH=x"],
            "MYMODEL_WIDTH=x is not an int\nhint: its value is: int from 1 to 4096",
        ),
        (
            ["M=examples/mymodel", "test_matrix", "SCHEDULE=cosine,cosin"],
            "SCHEDULE=cosin is not one of constant, cosine, onecycle, stable\nhint: did you mean cosine?",
        ),
    ],
)
def test_a_wrong_value_installs_nothing(root: Path, tmp_path: Path, call: list[str], error: str) -> None:
    done = make(root, f"VENV={tmp_path}/venv", *call)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert re.sub(r"make: \*\*\* .*\n", "", done.stderr) == f"error: {error}\n"


UNREADABLE = "no such file or directory\nhint: check the path, and that you may read it"
TWO_PLACES = (
    "a comparison needs two places, A= and B=\nhint: make compare A=results/latest:OPTIMIZER=sgd "
    "B=results/latest:OPTIMIZER=adamw for two variants of a matrix, or two matrices or runs"
)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            ["status"],
            "{tmp}/results/latest does not exist\nhint: run `make test_matrix` first, or say RUN=dir",
        ),
        (
            ["logs", "RUN=none"],
            "{root}/none does not exist\nhint: name a run or a matrix: RUN=results/latest",
        ),
        (
            ["continue", "RUN=Kconfig"],
            "{root}/Kconfig is a file, no run or matrix\nhint: name a run or a matrix: RUN=results/latest",
        ),
        (
            ["test_rerun", "TARGET=none"],
            "{root}/none does not exist\nhint: name a run or a matrix: TARGET=results/latest",
        ),
        (
            ["logs", "RUN={matrix}", "CELL=adma"],
            "CELL=adma matches none of 2 names\nhint: perhaps optimizer-adam_seed-1",
        ),
        (
            ["logs", "RUN={matrix}"],
            "CELL is not given\nhint: for example CELL=optimizer-sgd_seed-1; there are "
            "optimizer-sgd_seed-1, optimizer-adam_seed-1 …",
        ),
        (
            ["status", "RUN={matrix}", "FILTER=OPTIMIZER=adma"],
            "FILTER=OPTIMIZER=adma matches none of 2 cells\n"
            "hint: the axes are OPTIMIZER; a cell is called optimizer-sgd_seed-1",
        ),
        (["gputop", "RUN=/none"], "/none does not exist\nhint: name a run or a matrix: RUN=results/latest"),
        (["dashboard", "RUN=lib:/none"], "/none does not exist\nhint: name a folder of results: RUN=results"),
        (["compare"], TWO_PLACES),
        (
            ["report", "A=lib", "B=none:OPTIMIZER=sgd"],
            "{root}/none does not exist\nhint: name a run or a matrix: results/latest",
        ),
        (
            ["configdiff", "A=default", "B=defualt"],
            "B=defualt is not a run directory, file or preset\nhint: did you mean default?",
        ),
        (["mergeconfig", "FRAGMENTS=Kconfig none"], f"none: {UNREADABLE}"),
        (["sweep", "RANGE_CONFIG=none"], f"none: {UNREADABLE}"),
        (
            ["sweep"],
            "RANGE_CONFIG is not given\nhint: make sweep RANGE_CONFIG=my.ranges, "
            'with lines such as CONFIG_LEARNING_RATE="0.01|0.05"',
        ),
        (
            ["data", "DATA_DIR=none"],
            "DATA_DIR=none is not a folder\nhint: name the folder that has the files; "
            "CONFIG_DATA_DIR=folder says where they are put",
        ),
    ],
)
def test_what_is_not_there_installs_nothing(root: Path, tmp_path: Path, call: list[str], error: str) -> None:
    matrix = tmp_path / "matrix"
    matrix.mkdir()
    cells = [{"name": f"optimizer-{name}_seed-1", "values": {"OPTIMIZER": name}} for name in ("sgd", "adam")]
    (matrix / "matrix.json").write_text(json.dumps({"cells": cells}))
    output = [f"O={tmp_path}"] if call == ["status"] else []
    done = make(root, f"VENV={tmp_path}/venv", *output, *(word.format(matrix=matrix) for word in call))
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [matrix])
    said = error.replace("{root}", str(root)).replace("{tmp}", str(tmp_path))
    assert re.sub(r"make: \*\*\* .*\n", "", done.stderr) == f"error: {said}\n"


@pytest.mark.parametrize(
    ("matrix", "call"),
    [
        ("MATRIX_AXES=augment=@defconfigs/default", "FILTER=augment=defaults"),
        ("MATRIX_INCLUDE=OPTIMIZER=adam", "FILTER=OPTIMIZER=adma"),
        ("SEED=1..3", "FILTER=SEED=2"),
    ],
)
def test_a_filter_that_may_mean_a_cell_is_left_to_the_matrix(root: Path, matrix: str, call: str) -> None:
    given = dict(word.split("=", 1) for word in (matrix, call))
    environment = {
        "KHARNESS_GOALS": "test_matrix",
        "KHARNESS_MAKE_VARS": " ".join(given),
        "PYTHONPATH": "lib",
    }
    command = [sys.executable, "scripts/check_make_call.py"]
    done = subprocess.run(command, cwd=root, env={**os.environ, **environment, **given}, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(("goals", "code"), [("report", 2), ("train report", 0)])
def test_what_an_earlier_target_writes_is_not_asked_for(
    root: Path, tmp_path: Path, goals: str, code: int
) -> None:
    call = {"KHARNESS_GOALS": goals, "KHARNESS_MAKE_VARS": "O", "O": str(tmp_path), "PYTHONPATH": "lib"}
    command = [sys.executable, "scripts/check_make_call.py"]
    done = subprocess.run(command, cwd=root, env={**os.environ, **call}, check=False)
    assert done.returncode == code


def test_a_python_that_is_none_is_refused(root: Path) -> None:
    done = make(root, "check", "PYTHON=/nonexistent/python")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith("PYTHON=/nonexistent/python does not run.  Stop.")
