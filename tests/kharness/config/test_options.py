"""A training script's flags and typed options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kharness.config import options
from kharness.config.errors import ConfigError
from kharness.config.generate import write_config
from kharness.config.options import ConfiguredOptions, Options
from kharness.config.places import OUTPUT
from kharness.config.project_name import checksum
from kharness.config.tree import Origin, Tree


def parse(checkout: Path, *argv: str) -> Options:
    found, _ = options.parse(argv, root=checkout, model="lenet5", prog="lenet5/train.py", description="x")
    return found


def test_flags_are_the_symbols_by_another_door(checkout: Path) -> None:
    found = parse(
        checkout,
        *("--optimizer", "adam", "--dataset", "mnist", "--tracker", "wandb,trackio", "--learning-rate=1e-3"),
        *("--tracker-project", "my-experiments", "--tracker-run-name", "experiment-1", "--no-channels-last"),
    )
    assert (found.OPTIMIZER, found.DATASET, found.LEARNING_RATE) == ("adam", "mnist", 0.001)
    assert (found.ENABLE_WANDB, found.ENABLE_TRACKIO, found.ENABLE_TENSORBOARD) == (True, True, False)
    assert (found.TRACKER_PROJECT, found.TRACKER_RUN_NAME) == ("my-experiments", "experiment-1")
    assert (found.CHANNELS_LAST, found.OPTIMIZER_ADAM_BETAS) == (False, [0.9, 0.999])
    assert found.resolved.origins["LEARNING_RATE"] == Origin("flag", "--learning-rate 1e-3")
    assert found.resolved.origins["CHANNELS_LAST"] == Origin("flag", "--no-channels-last")


def test_option_out_of_reach_is_none_and_a_misspelled_one_an_error(checkout: Path) -> None:
    found = parse(checkout, "--optimizer", "adam")
    assert found.OPTIMIZER_SGD_MOMENTUM is None
    with pytest.raises(AttributeError, match=r"^LERNING_RATE is not an option: no Kconfig file has it$"):
        _ = found.LERNING_RATE


def test_an_option_that_came_after_a_run_directory_is_none_there(checkout: Path, tmp_path: Path) -> None:
    text = parse(checkout).files()["config.py"]
    assert "CHANNELS_LAST = " in text
    (tmp_path / "config.py").write_text(
        re.sub(r"^CHANNELS_LAST = .*\n|\bCHANNELS_LAST\b", "", text, flags=re.M)
    )
    assert ConfiguredOptions(tmp_path, root=checkout).CHANNELS_LAST is None


def test_project_is_expanded_and_run_name_is_not(checkout: Path) -> None:
    found = parse(checkout)
    names = (found.TRACKER_PROJECT, found.TRACKER_RUN_NAME)
    assert names == (f"lenet5-{checksum(checkout)}", "{model}_{optimizer}_{timestamp}")


def test_base_is_the_defaults_without_a_config(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(checkout, "--seed", "4").SEED == 4
    assert capsys.readouterr().out == (
        "configuration: the defaults of lenet5 (there is no .config), then flags\n"
    )


def test_base_is_the_config_of_the_checkout(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = Tree.load(checkout)
    adamw = tree.assignments("OPTIMIZER", "adamw", Origin("make variable", "CONFIG_OPTIMIZER=adamw"))
    write_config(tree.resolve(adamw), checkout, root=checkout)
    assert parse(checkout).OPTIMIZER == "adamw"
    assert capsys.readouterr().out == "configuration: .config\n"


def test_another_folder_has_the_configuration(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, other = Tree.load(checkout), tmp_path / "other"
    for folder, seed in ((checkout, "4"), (other, "7")):
        layer = tree.assignments("SEED", seed, Origin("preset", "p:1"))
        write_config(tree.resolve(layer), folder, root=checkout)
    monkeypatch.setenv(OUTPUT, str(other))
    assert parse(checkout).SEED == 7
    assert capsys.readouterr().out == f"configuration: {other}/.config\n"


def test_per_optimizer_default_follows_the_flag(checkout: Path) -> None:
    tree = Tree.load(checkout)
    write_config(tree.resolve([]), checkout, root=checkout)
    assert (parse(checkout).LEARNING_RATE, parse(checkout, "--optimizer", "adam").LEARNING_RATE) == (
        0.1,
        0.003,
    )


def test_base_is_the_run_directory_if_one_is_named(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree.load(checkout)
    run = tmp_path / "run"
    cell = tree.assignments("SEED", "7", Origin("matrix axis", "SEED=6|7"))
    write_config(tree.resolve(cell), run, root=checkout)
    found, arguments = options.parse(
        ["--run-dir", str(run)], root=checkout, model="lenet5", prog="lenet5/train.py", description="x"
    )
    assert (found.SEED, arguments.run_dir) == (7, run)
    assert capsys.readouterr().out == f"configuration: {run}/.config\n"
    with_flag = parse(checkout, "--run-dir", str(run), "--batch-size", "9")
    assert with_flag.resolved.origins["SEED"] == Origin("matrix axis", "SEED=6|7")
    assert with_flag.values == {**found.values, "BATCH_SIZE": 9}
    assert capsys.readouterr().out == f"configuration: {run}/.config, then flags\n"


def test_a_run_directory_that_is_new_begins_with_the_checkouts_configuration(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    assert parse(checkout, "--run-dir", str(new), "--seed", "5").SEED == 5
    tree = Tree.load(checkout)
    write_config(
        tree.resolve(tree.assignments("SEED", "7", Origin("preset", "p:1"))), checkout, root=checkout
    )
    new.mkdir()
    assert parse(checkout, "--run-dir", str(new)).SEED == 7
    assert capsys.readouterr().out.splitlines() == [
        "configuration: the defaults of lenet5 (there is no .config), then flags",
        "configuration: .config",
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--optimizer", "adamx"], "--optimizer adamx: OPTIMIZER=adamx is not one of adam, adamw, sgd"),
        (["--tracker", "wandbx"], "--tracker wandbx: TRACKER=wandbx: no tracker is called wandbx"),
        (["--batch-size", "0"], "--batch-size 0: BATCH_SIZE=0 is outside 1..65536"),
        (["--seed", "1,2"], "--seed 1,2: SEED=1,2 is not an int"),
        (
            ["--optimizer-adam-eps", "1e-3"],
            "--optimizer-adam-eps 1e-3: OPTIMIZER_ADAM_EPS=1e-3 has no effect: "
            "needs OPTIMIZER_ADAM=y, which is n",
        ),
        (
            ["--tracker-project", "{modle}"],
            "--tracker-project {modle}: TRACKER_PROJECT: '{modle}' has an unknown field {modle}",
        ),
        (["--tracker-project", ""], "--tracker-project : TRACKER_PROJECT: is empty"),
        (["--optimzer", "adam"], "unrecognized arguments: --optimzer adam"),
        (["--opt", "adam"], "unrecognized arguments: --opt adam"),
        (["--run-dir", "/dev/null"], "--run-dir=/dev/null is not a directory"),
        (["--run-dir", "/dev/null/x"], "--run-dir=/dev/null/x is not a directory"),
        (["--run-dir", "x" * 256], f"--run-dir={'x' * 77}… is too long for a path"),
    ],
)
def test_flag_is_refused(checkout: Path, argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(checkout, *argv)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["--optimzer", "adam"], "did you mean --optimizer?"),
        (["--batchsize=3"], "did you mean --batch-size?"),
        (["--seed", "3", "--epochs", "2"], "did you mean --num-epochs?"),
        (["--lr", "0.1"], "did you mean --learning-rate?"),
        (["--xyz"], "lenet5/train.py --help lists every flag"),
        (["adam"], "lenet5/train.py --help lists every flag"),
        (["--run-dir"], "lenet5/train.py --help lists every flag"),
        (["--seed", "1,2"], "a matrix trains with each: make test_matrix MODEL=lenet5 SEED=1,2"),
        (["--seed", "1..3"], "a matrix trains with each: make test_matrix MODEL=lenet5 SEED=1..3"),
        (["--seed", "1,x"], "its value is: int from 0 to 4294967295"),
    ],
)
def test_hint_of_a_flag_names_the_one_that_was_meant(checkout: Path, argv: list[str], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(checkout, *argv)
    assert caught.value.hint == hint


def test_the_last_of_a_flag_counts(checkout: Path) -> None:
    flags = ["--seed", "1", "--optimizer", "adam", "--channels-last", "--no-channels-last"]
    found = parse(checkout, *flags, "--seed", "2", "--optimizer", "adamw")
    assert (found.SEED, found.OPTIMIZER, found.CHANNELS_LAST) == (2, "adamw", False)


def test_a_value_in_another_case_is_taken_and_said(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(checkout, "--optimizer", "AdamW", "--tracker", "None").OPTIMIZER == "adamw"
    assert capsys.readouterr().out.splitlines()[1:] == [
        "note: OPTIMIZER=AdamW is taken as OPTIMIZER=adamw",
        "note: TRACKER=None is taken as TRACKER=none",
    ]


def test_help_groups_flags_by_menu_with_help_type_and_default(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as caught:
        parse(checkout, "--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "\nTraining: AdamW options:\n  --optimizer-adamw-betas BETAS\n" in text
    assert (
        "  --batch-size SIZE     Batch size. Images (or sequences) per optimizer step. "
        "(int, 1 to 65536; default 64)\n"
    ) in text
    assert (
        "  --optimizer OPTIMIZER\n                        Optimizer. (one of adam, adamw, sgd; default sgd)\n"
        in text
    )
    assert "default 0.1 if OPTIMIZER_SGD, else 0.003)" in text


@pytest.mark.parametrize(
    ("model", "dataset"),
    [
        ("gpt2", "Text. (one of pydoc-topics, finewebedu, "),
        ("lenet5", "Dataset. (one of mnist-subset, mnist; default mnist-subset)\n"),
        ("resnet50", "Pictures. (one of cifar10, cifar100, "),
    ],
)
def test_help_is_of_its_model_and_fits_80_columns(root: Path, model: str, dataset: str) -> None:
    command = [sys.executable, str(root / model / "train.py"), "--help"]
    widths = {
        columns: subprocess.run(
            command, env={**os.environ, "COLUMNS": columns}, capture_output=True, text=True, check=True
        ).stdout
        for columns in ("80", "200")
    }
    assert f"\n  --dataset DATASET     {dataset}" in widths["200"]
    assert [line for line in widths["80"].splitlines() if len(line) > 80] == []


def run_directory(checkout: Path) -> Path:
    """One like those of a matrix, in the checkout."""
    tree = Tree.load(checkout)
    cell = tree.assignments("LEARNING_RATE", "0.05", Origin("matrix axis", "LEARNING_RATE=0.05"))
    run = checkout / "results" / "cell"
    write_config(tree.resolve(cell), run, root=checkout)
    return run


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_run_directory_needs_neither_kconfiglib_nor_the_tree(checkout: Path) -> None:
    run = run_directory(checkout)
    (checkout / "Kconfig").unlink()
    code = (
        "import sys\nfrom pathlib import Path\nfrom kharness.config.options import parse\n"
        "found, _ = parse(['--run-dir', sys.argv[1], '--from-scratch'], root=Path(sys.argv[2]),\n"
        "                 model='lenet5', prog='', description='')\n"
        "print(found.LEARNING_RATE, found.affects.of('SEED'), 'kconfiglib' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(run), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (
        "configuration: results/cell/.config\n0.05 frozenset({'results'}) False\n",
        "",
    )


EDITED = [
    (
        [(".config", 'RATE="0.05"', 'RATE="0.5"'), (".config", "CONFIG_SEED=1\n", "CONFIG_SEED=2\n")],
        "results/cell/.config was edited by hand: SEED=2 (config.py has 1), "
        'LEARNING_RATE="0.5" (config.py has 0.05)',
    ),
    (
        [("config.py", "BATCH_SIZE = 64", "BATCH_SIZE = 32")],
        "results/cell/config.py was edited by hand: BATCH_SIZE=32 (.config has 64)",
    ),
    (
        [(".config", "CONFIG_CHANNELS_LAST=y\n", "")],
        "results/cell/.config was edited by hand: CHANNELS_LAST=nothing (config.py has y)",
    ),
    (
        [("config.py", "TRACKER_PROJECT = 'lenet5-", "TRACKER_PROJECT = 'mine-")],
        "results/cell/config.py was edited by hand: no value of .config differs",
    ),
]


@pytest.mark.parametrize(("edits", "message"), EDITED, ids=["config", "config.py", "line", "project"])
@pytest.mark.parametrize("flags", [[], ["--seed", "5"]], ids=["", "flag"])
def test_a_run_directory_edited_by_hand_is_refused(
    checkout: Path, edits: list[tuple[str, str, str]], message: str, flags: list[str]
) -> None:
    run = run_directory(checkout)
    for name, old, new in edits:
        replace(run / name, old, new)
    with pytest.raises(ConfigError) as caught:
        parse(checkout, "--run-dir", str(run), *flags)
    assert str(caught.value) == message
    assert caught.value.hint == ("undo that, or take the values of .config: make olddefconfig O=results/cell")


def test_comments_and_a_crash_between_two_files_are_no_edits(checkout: Path) -> None:
    run = run_directory(checkout)
    before = (run / "config.py").read_text()
    replace(run / ".config", "# Training\n", "# Training, again\n")
    assert parse(checkout, "--run-dir", str(run)).LEARNING_RATE == 0.05
    tree = Tree.load(checkout)
    write_config(tree.resolve(tree.assignments("SEED", "9", Origin("flag", "--seed 9"))), run, root=checkout)
    (run / "config.py").write_text(before)  # killed before it wrote this one
    assert parse(checkout, "--run-dir", str(run)).SEED == 9


def test_the_checkout_may_be_edited_by_hand(checkout: Path) -> None:
    tree = Tree.load(checkout)
    write_config(tree.resolve([]), checkout, root=checkout)
    replace(checkout / ".config", "CONFIG_SEED=1\n", "CONFIG_SEED=2\n")
    assert parse(checkout).SEED == 2
    replace(checkout / "config.py", "SEED = 1\n", "SEED = 3\n")
    assert parse(checkout).SEED == 2


def test_a_config_py_of_an_earlier_version_leaves_the_reading_to_the_tree(checkout: Path) -> None:
    run = run_directory(checkout)
    script = run / "config.py"
    lines = script.read_text().splitlines(keepends=True)
    start = lines.index("affects = {\n")
    end = lines.index("}\n", start)
    script.write_text("".join(line for line in lines[:start] + lines[end:] if "lines below" not in line))
    replace(script, "}\n", "")
    assert parse(checkout, "--run-dir", str(run)).resolved.values["LEARNING_RATE"] == 0.05
