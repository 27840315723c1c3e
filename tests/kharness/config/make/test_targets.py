"""The configuration targets as a user meets them: real processes in a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.config_py import read_values
from kharness.config.make import targets

Run = Callable[..., subprocess.CompletedProcess[str]]


def output(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_defconfig_writes_the_default_preset(checkout: Path, kconfig: Run) -> None:
    assert output(kconfig("defconfig")) == ".config: defconfigs/default\n"
    assert output(kconfig("defconfig")) == ".config (unchanged): defconfigs/default\n"
    assert read_values(checkout / "config.py")["ENABLE_TRACKIO"] is True


def test_defconfig_says_that_axes_stay_where_the_model_changes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> list[str]:
        assert targets.run(["defconfig", f"O={tmp_path}", *words], root) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "MATRIX_AXES=O" in line]

    assert told("MODEL=gpt2") == [
        "note: MATRIX_AXES=OPTIMIZER=sgd|adamw|muon SEED=1..5 (defconfigs/default:4) stays with another "
        "model: make test_matrix compares by them; MATRIX_AXES= leaves them out"
    ]
    assert told("MODEL=gpt2", "MATRIX_AXES=") == told("MODEL=lenet5") == []


@pytest.mark.parametrize(
    "asked", ["lenet5-mnist", "lenet5/defconfigs/lenet5-mnist", "./lenet5/defconfigs/lenet5-mnist"]
)
def test_defconfig_takes_a_name_or_a_path(asked: str, checkout: Path, kconfig: Run) -> None:
    assert output(kconfig("defconfig", DEFCONFIG=asked)) == ".config: lenet5/defconfigs/lenet5-mnist\n"
    assert read_values(checkout / "config.py")["BATCH_SIZE"] == 128


def test_defconfig_takes_the_preset_that_the_target_names(
    checkout: Path, kconfig: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KHARNESS_PRESET", "lenet5-mnist")
    assert output(kconfig("defconfig")) == ".config: lenet5/defconfigs/lenet5-mnist\n"


def test_defconfig_keeps_the_tracker_of_the_command_line(checkout: Path, kconfig: Run) -> None:
    result = kconfig("defconfig", TRACKER="both", GPU_MONITOR="y", CONFIG_OPTIMIZER="adamw")
    assert (
        output(result) == ".config: defconfigs/default, CONFIG_OPTIMIZER=adamw, GPU_MONITOR=y, TRACKER=both\n"
    )
    output(kconfig("olddefconfig"))
    values = read_values(checkout / "config.py")
    assert (values["ENABLE_TRACKIO"], values["ENABLE_WANDB"], values["GPU_MONITOR"]) == (True, True, True)
    assert (values["OPTIMIZER"], values["LEARNING_RATE"]) == ("adamw", 0.003)


def test_variable_in_the_environment_is_not_a_command_line(
    checkout: Path, kconfig: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRACKER", "CONFIG_SEED", "O", "DEFCONFIG"):
        monkeypatch.setenv(name, "3")
    assert output(kconfig("defconfig")) == ".config: defconfigs/default\n"


def test_script_without_make_takes_variables_as_arguments(checkout: Path) -> None:
    command = [sys.executable, "scripts/kconfig.py", "defconfig", "TRACKER=wandb", "O=out"]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert output(result) == "out/.config: defconfigs/default, TRACKER=wandb\n"


@pytest.mark.parametrize(
    "target", ["defconfig", "olddefconfig", "allyesconfig", "allnoconfig", "alldefconfig", "randconfig"]
)
def test_output_directory_gets_everything(target: str, checkout: Path, kconfig: Run) -> None:
    before = sorted(checkout.iterdir())
    output(kconfig(target, O="deep/out"))
    assert sorted(checkout.iterdir()) == sorted([*before, checkout / "deep"])
    names = {path.name for path in (checkout / "deep" / "out").iterdir()}
    assert names == {".config", ".config.lock", ".config.origins.json", "config.py"}


def test_savedefconfig_writes_what_gives_the_same_config_again(checkout: Path, kconfig: Run) -> None:
    output(kconfig("defconfig", DEFCONFIG="lenet5-mnist", CONFIG_OPTIMIZER="adam"))
    text = (checkout / ".config").read_text()
    assert output(kconfig("savedefconfig")) == "defconfig: 4 lines\n"
    assert (checkout / "defconfig").read_text() == (
        "CONFIG_DATASET_MNIST=y\nCONFIG_BATCH_SIZE=128\nCONFIG_NUM_EPOCHS=15\nCONFIG_OPTIMIZER_ADAM=y\n"
    )
    output(kconfig("defconfig", DEFCONFIG="./defconfig"))
    assert (checkout / ".config").read_text() == text


def test_list_defconfigs_says_what_every_preset_is_and_needs(checkout: Path, kconfig: Run) -> None:
    (checkout / "lenet5/defconfigs/lenet5-two").write_text(
        "# Two optimizers on MNIST, with so many words that the line is broken before it has 80 of them.\n"
        '# Needs: a CPU\nCONFIG_DATASET_MNIST=y\nCONFIG_MATRIX_AXES="OPTIMIZER=sgd|adam"\n'
    )
    assert output(kconfig("list-defconfigs")) == (
        "Any model, in defconfigs/\n"
        "  default\n"
        "LeNet-5 (handwritten digits), in lenet5/defconfigs/\n"
        "  lenet5-mnist\n"
        "      Needs: `make data` once\n"
        "  lenet5-two\n"
        "      Two optimizers on MNIST, with so many words that the line is broken before\n"
        "      it has 80 of them.\n"
        "      Needs: a CPU, `make data` once. Run: `make test_matrix`\n"
    )


def test_olddefconfig_starts_from_the_default_preset_and_says_so(kconfig: Run) -> None:
    assert output(kconfig("olddefconfig")) == (
        "no .config yet: starting from defconfigs/default\n.config: defconfigs/default\n"
    )


@pytest.fixture
def older_config(checkout: Path, kconfig: Run) -> Path:
    """A `.config` from before two symbols came to the tree and one left it."""
    kconfig_file = checkout / "lib" / "monitoring" / "Kconfig"
    today = kconfig_file.read_text()
    kconfig_file.write_text(
        today.replace('menu "Monitoring"\n', 'menu "Monitoring"\n\nconfig GONE\n\tint "Gone"\n\tdefault 1\n')
    )
    output(kconfig("defconfig", CONFIG_GONE="2"))
    kconfig_file.write_text(
        today.replace(
            'menu "Monitoring"\n',
            'menu "Monitoring"\n\nconfig NEW_SWITCH\n\tbool "New switch"\n\thelp\n\t  What it does.\n\n'
            'config NEW_NUMBER\n\tint "New number"\n\trange 1 9\n\tdefault 4\n\tdepends on NEW_SWITCH\n',
        )
    )
    return checkout / ".config"


def test_olddefconfig_drops_what_is_gone_and_says_so(older_config: Path, kconfig: Run) -> None:
    assert output(kconfig("olddefconfig")) == (
        "note: GONE is gone from the option tree and dropped\n.config: as before\n"
    )
    assert "GONE" not in older_config.read_text()
    assert "# CONFIG_NEW_SWITCH is not set\n" in older_config.read_text()


def test_new_symbols_are_listed_with_and_without_help(older_config: Path, kconfig: Run) -> None:
    output(kconfig("olddefconfig", CONFIG_NEW_SWITCH="y"))
    text = older_config.read_text().replace("CONFIG_NEW_SWITCH=y\n", "").replace("CONFIG_NEW_NUMBER=4\n", "")
    older_config.write_text(text)
    assert output(kconfig("listnewconfig")) == "CONFIG_NEW_SWITCH=n\n"
    assert output(kconfig("helpnewconfig")) == (
        "CONFIG_NEW_SWITCH=n\n  New switch. What it does.\n  bool; default n\n\n"
    )


def test_oldconfig_asks_for_new_symbols_until_it_has_answers(older_config: Path, kconfig: Run) -> None:
    result = kconfig("oldconfig", stdin="?\nmaybe\ny\n10\n7\n")
    assert output(result).replace("] ", "]\n") == (
        "note: GONE is gone from the option tree and dropped\n"
        "New switch (NEW_SWITCH) [n]\nNew switch. What it does.\nbool; default n\n"
        "New switch (NEW_SWITCH) [n]\nNEW_SWITCH=maybe is not a bool; its value is: y or n\n"
        "New switch (NEW_SWITCH) [n]\n"
        "New number (NEW_NUMBER) [4]\nNEW_NUMBER=10 is outside 1..9; give a value from 1 to 9\n"
        "New number (NEW_NUMBER) [4]\n.config: as before\n"
    )
    assert "CONFIG_NEW_SWITCH=y\nCONFIG_NEW_NUMBER=7\n" in older_config.read_text()
    assert output(kconfig("oldconfig")) == ".config (unchanged): as before\n"


def test_oldconfig_without_answers_changes_nothing(older_config: Path, kconfig: Run) -> None:
    before = older_config.read_text()
    result = kconfig("oldconfig")
    assert (result.returncode, result.stderr) == (
        2,
        "error: NEW_SWITCH got no answer\nhint: `make olddefconfig` takes the default of every new symbol\n",
    )
    assert older_config.read_text() == before


def test_randconfig_is_the_same_for_the_same_seed(checkout: Path, kconfig: Run) -> None:
    texts = []
    for seed in ("4", "4", "5"):
        assert output(kconfig("randconfig", SEED=seed)).endswith(f": random values with SEED={seed}\n")
        texts.append((checkout / ".config").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_randconfig_names_the_seed_it_drew(checkout: Path, kconfig: Run) -> None:
    seed = output(kconfig("randconfig")).strip().rpartition("=")[2]
    text = (checkout / ".config").read_text()
    output(kconfig("randconfig", SEED=seed))
    assert (checkout / ".config").read_text() == text


def test_mergeconfig_warns_of_each_overridden_value(checkout: Path, kconfig: Run) -> None:
    output(kconfig("defconfig", DEFCONFIG="lenet5-mnist"))
    (checkout / "a").write_text("CONFIG_BATCH_SIZE=32\nCONFIG_OPTIMIZER_ADAM=y\nCONFIG_SEED=2\n")
    (checkout / "b").write_text("CONFIG_BATCH_SIZE=16\nCONFIG_OPTIMIZER_ADAMW=y\nCONFIG_SEED=2\n")
    result = kconfig("mergeconfig", FRAGMENTS="a b", TRACKER="wandb")
    assert (result.returncode, result.stdout) == (0, ".config: as before, a, b, TRACKER=wandb\n")
    assert result.stderr == (
        "warning: a:1: BATCH_SIZE=32 overrides BATCH_SIZE=128 (preset lenet5/defconfigs/lenet5-mnist:3)\n"
        "warning: b:1: BATCH_SIZE=16 overrides BATCH_SIZE=32 (fragment a:1)\n"
        "warning: b:2: OPTIMIZER_ADAMW=y overrides OPTIMIZER_ADAM=y (fragment a:2)\n"
    )
    values = read_values(checkout / "config.py")
    assert (values["BATCH_SIZE"], values["OPTIMIZER"], values["NUM_EPOCHS"]) == (16, "adamw", 15)


def test_mergeconfig_says_what_a_fragment_sets_aside(checkout: Path, kconfig: Run) -> None:
    (checkout / "a").write_text('CONFIG_OPTIMIZER_ADAM=y\nCONFIG_OPTIMIZER_ADAM_EPS="1e-3"\n')
    (checkout / "b").write_text("CONFIG_OPTIMIZER_SGD=y\n")
    result = kconfig("mergeconfig", FRAGMENTS="a b")
    assert result.stdout == (
        "no .config yet: starting from defconfigs/default\n"
        "note: OPTIMIZER_ADAM_EPS=1e-3 (a:2) is set aside: needs OPTIMIZER_ADAM=y, which is n\n"
        ".config: defconfigs/default, a, b\n"
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mergeconfig", "FRAGMENTS is not given"),
        ("configwhy", "SYMBOL is not given"),
        ("configdiff", "A is not given"),
        ("nonsense", "'nonsense' is not a configuration target"),
    ],
)
def test_target_says_what_it_misses(target: str, message: str, kconfig: Run) -> None:
    result = kconfig(target)
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, f"error: {message}")
