"""Variables on make's command line reach the targets that read them, and others are refused."""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest

from kharness.config.errors import ConfigError
from kharness.config.make.known_variables import (
    ENVIRONMENT,
    EVERYWHERE,
    OUTSIDE,
    SHORT,
    TARGETS,
    target_of,
)
from kharness.config.make.variables import check_call, given, is_yes, layer, less_axes
from kharness.config.presets import find_preset
from kharness.config.tree import Tree
from monitoring.follower import TRACKERS

# Symbols, as which other targets than their own read these variables.
SYMBOLS = {"DATA_DIR", "LOG_EVERY", "SEED"}
# Of variables that do not take a 1.
VALUES = {"DEFCONFIG": "default"}


def environment(goals: str, **variables: str) -> dict[str, str]:
    """Environment that make hands to a recipe."""
    return {"KHARNESS_GOALS": goals, "KHARNESS_MAKE_VARS": " ".join(variables), **variables}


def refused(root: Path, goals: str, **variables: str) -> str:
    """Message and hint of check_call, empty where it accepts all variables."""
    try:
        check_call(environment(goals, **variables), root)
    except ConfigError as error:
        return f"{error}; {error.hint}"
    return ""


def refused_by_tree(root: Path, goals: str, variables: dict[str, str]) -> str:
    """Message and hint of the target itself, empty where it accepts all variables."""
    told = environment(goals, **variables)
    try:
        if "defconfig" in goals:
            find_preset(root, variables.get("DEFCONFIG", goals.removeprefix("defconfig-")))
        tree = Tree.load(root)
        tree.resolve(layer(tree, less_axes(tree, given([], told, root=root), told)))
    except ConfigError as error:
        return f"{error}; {error.hint}"
    return ""


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_reads_its_variables_and_no_other(root: Path, target: str) -> None:
    goal = target.replace("<name>", "default")
    for name in (*TARGETS[target].names, *EVERYWHERE, "CUDA_VISIBLE_DEVICES", "WANDB_MODE"):
        assert refused(root, goal, **{name: VALUES.get(name, "1")}) == ""
    nonsense = f"NOBODY=1 means nothing to make {goal}; "
    assert refused(root, goal, NOBODY="1").startswith(nonsense)
    for name in {name for reads in TARGETS.values() for name in reads.names} - {"TRACKER"}:
        taken = name in TARGETS[target].names or (name in SYMBOLS and TARGETS[target].symbol(name))
        assert (refused(root, goal, **{name: VALUES.get(name, "1")}) == "") == taken, name
    reads_all = TARGETS[target].symbols == ("",)
    assert (refused(root, goal, CONFIG_SEED="3") == "") == reads_all
    assert "CONFIG_SEED=3" in refused(root, goal, CONFIG_SEED="3") or reads_all


@pytest.mark.parametrize(
    ("goals", "variable"),
    [("help", "ALL"), ("reproduce", "ANYWAY"), ("check", "INSTALL"), ("report", "PAPER"), ("logs", "FOLLOW")],
)
def test_what_is_neither_yes_nor_no_is_refused(root: Path, goals: str, variable: str) -> None:
    for value in ("", "y", "n", "1", "0"):
        assert refused(root, goals, **{variable: value}) == ""
        found = given([f"{variable}={value}"], {}, goals, root=root)
        assert is_yes(found, variable) == (value in ("y", "1"))
    error = f"{variable}=yes is neither y nor n"
    assert refused(root, goals, **{variable: "yes"}) == f"{error}; write {variable}=y, or leave it out"
    with pytest.raises(ConfigError, match=f"^{error}$"):
        given([f"{variable}=yes"], {}, goals, root=root)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CONFIG_LEARNING_RAT", "did you mean LEARNING_RATE?"),
        ("CONFIG_learning_rate", "did you mean LEARNING_RATE?"),
        ("CONFIG_LR", "did you mean LEARNING_RATE?"),
        ("CONFIG_QQQ", "`make menuconfig` finds symbols with /"),
    ],
)
def test_unknown_symbol_is_refused_before_anything_is_installed(root: Path, name: str, hint: str) -> None:
    """The message is that of the tree, which needs kconfiglib."""
    assert refused(root, "train", **{name: "3"}) == f"{name[7:]}=3: unknown symbol; {hint}"


@pytest.mark.parametrize(
    ("goals", "call"),
    [
        ("train", "CONFIG_SEED=3 CONFIG_OPTIMIZER=Adam CONFIG_TRACKER=both"),
        ("train", "NUM_EPOCHS=0 LENET5_QUICK=y CHECKPOINT_EVERY_STEPS=5"),
        ("train", "GPT2_LAYERS=500 MAX_TIME=0.5 OPTIMIZER_SGD=y"),
        ("test_matrix", "OPTIMIZER=sgd,adam|all SEED=1..5 LEARNING_RATE=0.1,0.2 JOBS=2"),
        ("defconfig test_matrix", "OPTIMIZER=sgd|adam"),
        ("randconfig", "SEED=any"),
        ("continue", "CONFIG_SEED=1..10"),
        ("reproduce", "TRACKER=mine"),
        ("sync", "TRACKER=mine"),
    ],
)
def test_what_a_configuration_may_hold_is_taken(root: Path, goals: str, call: str) -> None:
    assert refused(root, goals, **dict(word.split("=", 1) for word in call.split())) == ""


SCHEDULE_X = (
    "SCHEDULE=x,y is not one of constant, cosine, onecycle, stable; see `make configwhy SYMBOL=SCHEDULE`"
)
KCONFIG = Path(__file__).resolve().parents[4] / "lib/kharness/training/optimizers/Kconfig"
OPTIMIZERS = ", ".join(re.findall(r'^\tdefault "(\w+)" if OPTIMIZER_', KCONFIG.read_text(), flags=re.M))


@pytest.mark.parametrize(
    ("goals", "call", "error"),
    [
        (
            "train",
            "CONFIG_OPTIMIZER=xx",
            f"OPTIMIZER=xx is not one of {OPTIMIZERS}; see `make configwhy SYMBOL=OPTIMIZER`",
        ),
        (
            "train",
            "OPTIMIZER=adamww",
            f"OPTIMIZER=adamww is not one of {OPTIMIZERS}; did you mean adamw or nadamw or adam?",
        ),
        (
            "train",
            "CONFIG_NUM_EPOCHS=abc",
            "NUM_EPOCHS=abc is not an int; its value is: int from 0 to 100000",
        ),
        ("train", "BATCH_SIZE=0", "BATCH_SIZE=0 is outside 1..65536; give a value from 1 to 65536"),
        ("train", "LENET5_QUICK=maybe", "LENET5_QUICK=maybe is not a bool; its value is: y or n"),
        ("train", "LEARNING_RATE=fast", "LEARNING_RATE=fast is not a float; its value is: float, 0 < x"),
        (
            "train",
            "TRACKER=wandbb",
            "TRACKER=wandbb: no tracker is called wandbb; known are none, "
            f"{', '.join(TRACKERS.names)}, both, or several separated by commas",
        ),
        (
            "train",
            "SEED=1,2",
            "SEED=1,2 is not an int; a matrix trains with each: make test_matrix SEED=1,2",
        ),
        ("test_matrix", "SCHEDULE=x,y", SCHEDULE_X),
        (
            "test_matrix",
            "JOBS=many",
            "JOBS=many: MATRIX_JOBS=many is not an int; its value is: int from 0 to 4096",
        ),
        (
            "train",
            "SEED=x BATCH_SIZE=0",
            "2 values are refused\n  SEED=x is not an int (its value is: int from 0 to 4294967295)\n"
            "  BATCH_SIZE=0 is outside 1..65536 (give a value from 1 to 65536); change all of them",
        ),
        ("defconfig", "DEFCONFIG=prunign", "unknown preset 'prunign'; did you mean pruning?"),
        ("defconfig", "DEFCONFIG=", "unknown preset ''; make list-defconfigs shows all"),
        ("defconfig-prunign", "", "unknown preset 'prunign'; did you mean pruning?"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_installed(
    root: Path, goals: str, call: str, error: str
) -> None:
    """In the words of the tree, which needs kconfiglib."""
    variables = dict(word.split("=", 1) for word in call.split())
    assert refused(root, goals, **variables) == error
    assert refused_by_tree(root, goals, variables) == error


@pytest.mark.parametrize(
    ("goals", "variable", "hint"),
    [
        ("test_matrix", "SEEDS=1..5", "write SEED=1..5"),
        ("test_matrix", "SEEDS=5", "write SEED=1..5"),
        ("test_matrix", "SEEDS=1,2,7", "write SEED=1,2,7"),
        ("defconfig", "SEEDS=1,2,7", 'write MATRIX_AXES="… SEED=1|2|7"'),
        ("test_matrix", "AXES=SEED=1|2", "write MATRIX_AXES='SEED=1|2'"),
        ("test_matrix", "EPOCHS=3", "write NUM_EPOCHS=3"),
        ("train", "LR=0.1", "write LEARNING_RATE=0.1"),
        ("train", "BATCH=32", "write BATCH_SIZE=32"),
        ("train", "STEPS=20", "write MAX_STEPS=20"),
        ("train", "SEEDS=7", "write SEED=7"),
        ("randconfig", "seed=3", "write SEED=3"),
        ("train", "LEARNING_RAET=1", "did you mean LEARNING_RATE?"),
        ("train", "TRAKCER=both", "did you mean TRACKER?"),
        ("status", "RUNS=x", "did you mean RUN?"),
        ("status", "run=x", "did you mean RUN?"),
        ("status", "CHECKPOINT=1", "CHECKPOINT= is for make control"),
        ("status", "NOTHING=1", "make status reads FILTER, RUN, CONFIG_RESULTS_DIR, O"),
        ("control", "CHECKPONIT=1", "did you mean CHECKPOINT?"),
        ("status", "EPOCHS=3", "make status reads FILTER, RUN, CONFIG_RESULTS_DIR, O"),
        ("status", "CONFIG_SEED=3", "make status reads FILTER, RUN, CONFIG_RESULTS_DIR, O"),
        ("help", "V1=1", "make help reads ALL, O"),
        ("test_matrix train", "DEFCONFIG=pruning", "DEFCONFIG= is for make defconfig"),
        ("train", "JOBS=2", "JOBS= is for make"),
        ("status", "SEED=1", "SEED= is for make randconfig"),
        ("sweep", "CONFIG_MATRIX_AXES=SEED=1", "leave it out: it has no effect here"),
    ],
)
def test_the_hint_says_what_was_probably_meant(root: Path, goals: str, variable: str, hint: str) -> None:
    name, _, value = variable.partition("=")
    said = refused(root, goals, **{name: value})
    assert said.startswith(f"{variable} means nothing to make {goals}; {hint}")


def test_what_a_hint_of_an_alias_names_is_a_symbol(root: Path) -> None:
    from kharness.config.refused import ALIASES

    tree = Tree.load(root)
    assert [symbol for symbol in ALIASES.values() if not tree.symbol(symbol)] == []


@pytest.mark.parametrize("name", ["1", "a:b", "a#b", "$(shell x)", "x y", "a'b", 'a"b', "ä"])
def test_a_name_that_is_no_identifier_is_refused(root: Path, name: str) -> None:
    quoted = name.replace("$", "$$").replace(" ", "\\ ")
    with pytest.raises(ConfigError, match="is not the name of a variable"):
        check_call({"KHARNESS_GOALS": "help", "MAKEFLAGS": f"r -- O=a\\ b {quoted}=1"}, root)


@pytest.mark.parametrize("goals", ["defconfig test_matrix", "defconfig", ""])
def test_a_variable_counts_for_every_target_of_the_call(goals: str) -> None:
    told = environment(goals, DEFCONFIG="pruning", O="out")
    assert given(["CONFIG_SEED=3"], told) == {"DEFCONFIG": "pruning", "O": "out", "CONFIG_SEED": "3"}


def test_a_symbol_in_another_case_is_taken_and_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = environment("train", dataset="MNIST", Tracker="None", gpu_monitor="Y")
    variables = given([], told, root=root)
    assert variables == {"CONFIG_DATASET": "MNIST", "TRACKER": "None", "GPU_MONITOR": "Y"}
    asked = {a.symbol: a.value for a in layer(Tree.load(root), variables)}
    assert {"DATASET_MNIST": "y", "GPU_MONITOR": "y", "ENABLE_TRACKIO": "n"}.items() <= asked.items()
    assert capsys.readouterr().err.splitlines() == [
        "note: dataset is taken as DATASET",
        "note: Tracker is taken as TRACKER",
        "note: gpu_monitor is taken as GPU_MONITOR",
        "note: DATASET=MNIST is taken as DATASET=mnist",
        "note: GPU_MONITOR=Y is taken as GPU_MONITOR=y",
        "note: TRACKER=None is taken as TRACKER=none",
    ]
    with pytest.raises(ConfigError, match="seed=2 contradicts CONFIG_SEED=1"):
        given([], environment("train", SEED="1", seed="2"), root=root)


def test_of_several_values_a_matrix_makes_axes(root: Path) -> None:
    tree, several = Tree.load(root), {"CONFIG_SEED": "1..5", "CONFIG_LEARNING_RATE": "0.1,0.01", "O": "x"}
    with pytest.raises(ConfigError) as caught:
        layer(tree, several)
    assert str(caught.value).splitlines()[1:] == [
        "  LEARNING_RATE=0.1,0.01 is not a float "
        "(a matrix trains with each: make test_matrix LEARNING_RATE=0.1,0.01)",
        "  SEED=1..5 is not an int (a matrix trains with each: make test_matrix SEED=1..5)",
    ]
    assert less_axes(tree, several, environment("defconfig")) == several
    assert less_axes(tree, several, environment("defconfig test_matrix")) == {"O": "x"}
    with pytest.raises(ConfigError) as caught:
        layer(tree, {"JOBS": "1,2"})
    assert "matrix" not in caught.value.hint


def test_without_make_the_script_stands_for_its_target(root: Path) -> None:
    assert given(["RUN=x"], {}, "status") == {"RUN": "x"}
    with pytest.raises(ConfigError, match="DEFCONFIG=x means nothing to make status"):
        given(["DEFCONFIG=x"], {}, "status", root=root)


@pytest.mark.parametrize(
    ("target", "variable"),
    [
        ("train", "VERBOSITY_LEVEL=ultra"),
        ("train", "ACTIVATION_STATISTICS_EVERY=100"),
        ("train", "LOG_EVERY=10"),
        ("test_matrix", "MATRIX_AXES=SEED=1|2"),
        ("trackio-view", "TRACKIO_PORT=7861"),
        ("summary", "REPORT_METRIC=val_loss"),
    ],
)
def test_a_symbol_needs_no_prefix(root: Path, target: str, variable: str) -> None:
    name, _, value = variable.partition("=")
    assert refused(root, target, **{name: value}) == ""
    assert given([variable], {}, target, root=root) == {f"CONFIG_{name}": value}
    assert given([variable, f"CONFIG_{variable}"], {}, target, root=root) == {f"CONFIG_{name}": value}
    with pytest.raises(ConfigError, match=f"^{name}=.* contradicts CONFIG_{name}=other$"):
        given([variable, f"CONFIG_{name}=other"], {}, target, root=root)


def test_a_target_has_its_own_variables_of_such_names(root: Path) -> None:
    for target, name in (("control", "LOG_EVERY"), ("randconfig", "SEED"), ("data", "DATA_DIR")):
        assert given([f"{name}=1"], {}, target, root=root) == {name: "1"}


def test_the_environment_is_not_the_command_line(root: Path) -> None:
    check_call({"KHARNESS_GOALS": "train", "KHARNESS_MAKE_VARS": "", "SEEDS": "3", "CONFIG_X": "y"}, root)


def test_what_a_help_comment_names_its_target_reads(root: Path) -> None:
    text = (root / "Makefile").read_text()
    comments: dict[str, str] = dict(re.findall(r"^([\w-]+):[^#\n]*##\s*(.*)$", text, flags=re.M))
    named = [
        (target, variable)
        for target, comment in comments.items()
        for variable in re.findall(r"(?<![:A-Z_])([A-Z_]+)=", comment)  # not B=dir:SYMBOL=value
    ]
    assert ("defconfig", "DEFCONFIG") in named
    assert [one for one in named if not TARGETS[one[0]].variable(one[1])] == []


def test_what_scripts_look_up_is_in_the_table(root: Path) -> None:
    """Each variable that code reads is one of a target, and each of a target is read somewhere."""
    read = re.compile(
        r'(?:variables|given)(?:\.get\(|\[|, )"([A-Z_]+)"|needs\("([A-Z]+)"|name(?:: str )?=\s*"([A-Z]+)"'
    )
    files = [*root.glob("scripts/*.py"), *root.glob("lib/kharness/**/*.py")]
    found = {"".join(names) for path in files for names in read.findall(path.read_text())} | {
        "ALL",
        "KEEP",
        "ONLY",
    }
    known = {name for reads in TARGETS.values() for name in reads.names}
    assert known - found == set()
    known |= {*SHORT, *EVERYWHERE, OUTSIDE}
    assert {name for name in found - known if not name.startswith(("CONFIG_", *ENVIRONMENT))} == set()


def test_what_the_docs_type_is_taken(root: Path) -> None:
    """Each call of make in a block of the docs whose words are targets."""
    seen, taken = [], []
    for page in (root / "README.md", *root.glob("docs/*.md")):
        text = page.read_text().replace("M=~/mymodel", f"M={root}/examples/mymodel")
        for block in re.findall(r"^```.*?^```", text, flags=re.M | re.S):
            for line in re.findall(r"^make (.*)$", block.replace("\\\n", " "), flags=re.M):
                words = list(takewhile(lambda word: word not in ("&&", "|"), _words(line)))
                goals = [word for word in words if "=" not in word]
                if all(target_of(goal) in TARGETS for goal in goals):
                    variables = dict(word.split("=", 1) for word in words if "=" in word)
                    seen.append(f"{page.name}: {line}")
                    taken += [seen[-1]] if not refused(root, " ".join(goals) or "train", **variables) else []
    assert any("NUM_GPUS=4" in line for line in taken)
    assert seen == taken


def _words(line: str) -> list[str]:
    with suppress(ValueError):  # no call but a line of a table that begins with `make`
        return shlex.split(line, comments=True)
    return ["?"]


def test_make_hands_over_its_targets(root: Path, tmp_path: Path) -> None:
    probe = tmp_path / "probe.mk"
    recipe = "\n.PHONY: one two\none two:\n\t@printenv KHARNESS_GOALS\n"
    probe.write_text((root / "Makefile").read_text() + recipe)
    command = ["make", "-s", "-f", str(probe), "one", "two"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "one two\none two\n"
    plain = subprocess.run(
        ["make", "-f", str(probe), "-pn"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert re.search(r"^(override )?KHARNESS_GOALS := train$", plain.stdout, flags=re.M)
