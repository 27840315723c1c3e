"""`make configwhy` and `make configdiff`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kharness.config.generate import write_config
from kharness.config.make.provenance import why as explain
from kharness.config.tree import Origin, Tree

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def shipped_tree(root: Path) -> Tree:
    return Tree.load(root)


def output(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def why(kconfig: Run, symbol: str, **variables: str) -> list[str]:
    """The first two lines and those about conditions."""
    lines = output(kconfig("configwhy", SYMBOL=symbol, **variables)).splitlines()
    return [line for line in lines if line.split()[0] not in ("menu", "defined", "help", "type")]


def test_configwhy_tells_a_default_and_what_decides_it(kconfig: Run) -> None:
    output(kconfig("defconfig", CONFIG_OPTIMIZER="adam"))
    assert output(kconfig("configwhy", SYMBOL="LEARNING_RATE")) == (
        "LEARNING_RATE=0.003, its default\n"
        "  from       default lib/kharness/training/optimizers/Kconfig:26\n"
        "  type       float, 0 < x\n"
        "  affects    results\n"
        "  default    0.1 if OPTIMIZER_SGD, else 0.003 (now OPTIMIZER_SGD=n)\n"
        "  menu       Training\n"
        "  defined    lib/kharness/training/optimizers/Kconfig:26\n"
        "  help       Peak learning rate. The schedule's highest value.\n"
    )


@pytest.mark.parametrize(
    ("symbol", "asked", "answer"),
    [
        ("LEARNING_RATE", [], "LEARNING_RATE=0.05, because OPTIMIZER_SGD"),
        ("LEARNING_RATE", ["OPTIMIZER=adam"], "LEARNING_RATE=0.003, its default"),
        (
            "WEIGHT_DECAY",
            ["MODEL=gpt2", "OPTIMIZER=adamwadv"],
            "WEIGHT_DECAY=0.1, because MODEL_GPT2 and OPTIMIZER_ADAMWADV",
        ),
        ("OPTIMIZER", ["MODEL=gpt2"], "OPTIMIZER=adamw, because MODEL_GPT2"),
        ("MACHINE_MONITOR", ["GPU_MONITOR=y"], "MACHINE_MONITOR=y, because GPU_MONITOR"),
        ("NUM_GPUS", [], "NUM_GPUS=1, because MATRIX_GPUS_PER_CELL and !DEVICE_CPU"),
        ("EVALUATE_EVERY_STEPS", [], "EVALUATE_EVERY_STEPS=0, because EVAL_INTERVAL"),
        ("NUM_EPOCHS", ["NUM_EPOCHS=3"], "NUM_EPOCHS=3"),
    ],
)
def test_configwhy_gives_the_short_answer_first(
    shipped_tree: Tree, symbol: str, asked: list[str], answer: str
) -> None:
    layer = [
        a
        for text in asked
        for a in shipped_tree.assignments(
            text.split("=")[0], text.split("=")[1], Origin("make variable", text)
        )
    ]
    first, second, *_ = explain(shipped_tree, shipped_tree.resolve(layer), symbol)
    assert first == answer
    assert second.startswith("  from       ")


def test_configwhy_of_what_each_model_has_tells_that_of_the_chosen_one(shipped_tree: Tree) -> None:
    resolved = shipped_tree.resolve(shipped_tree.assignments("MODEL", "lenet5", Origin("make")))
    lines = dict(line.split(maxsplit=1) for line in list(explain(shipped_tree, resolved, "DATASET"))[1:])
    datasets = re.findall(r'default "(.+)" if DATASET_', (shipped_tree.root / "lenet5/Kconfig").read_text())
    assert lines["type"] == f"one of {', '.join(datasets)}"
    assert lines["choice"].startswith("Dataset: DATASET_MNIST_SUBSET=y")
    assert lines["depends"].startswith("MODEL_READS_DIGITS ")
    assert lines["from"].startswith("default lenet5/Kconfig:")
    assert lines["defined"].startswith("lenet5/Kconfig:")


def test_configwhy_tells_preset_make_variable_and_choice(kconfig: Run) -> None:
    output(kconfig("defconfig", DEFCONFIG="lenet5-mnist", CONFIG_OPTIMIZER="adam", TRACKER="both"))
    assert why(kconfig, "BATCH_SIZE")[:2] == [
        "BATCH_SIZE=128",
        "  from       preset lenet5/defconfigs/lenet5-mnist:3",
    ]
    assert why(kconfig, "CONFIG_ENABLE_WANDB")[:2] == [
        "ENABLE_WANDB=y",
        "  from       make variable TRACKER=both",
    ]
    assert why(kconfig, "OPTIMIZER") == [
        "OPTIMIZER=adam",
        "  from       make variable CONFIG_OPTIMIZER=adam",
        "  affects    results, speed",
        "  default    sgd",
        "  choice     Optimizer: OPTIMIZER_ADAM=y (make variable CONFIG_OPTIMIZER=adam)",
    ]
    assert why(kconfig, "OPTIMIZER_SGD_MOMENTUM") == [
        "OPTIMIZER_SGD_MOMENTUM has no value: needs OPTIMIZER_SGD=y, which is n",
        "  affects    results",
        "  default    0.9",
        "  depends    OPTIMIZER_SGD (now OPTIMIZER_SGD=n)",
    ]


def test_configwhy_tells_a_fragment_and_a_hand_edit(checkout: Path, kconfig: Run) -> None:
    (checkout / "more").write_text("\nCONFIG_NUM_EPOCHS=9\n")
    output(kconfig("mergeconfig", FRAGMENTS="more"))
    config = checkout / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=1", "CONFIG_SEED=8"))
    line = config.read_text().splitlines().index("CONFIG_SEED=8") + 1
    assert why(kconfig, "NUM_EPOCHS")[1] == "  from       fragment more:2"
    assert why(kconfig, "SEED")[:2] == ["SEED=8", f"  from       config file .config:{line}"]


def test_configwhy_takes_the_command_line_of_this_call_into_account(kconfig: Run) -> None:
    output(kconfig("defconfig"))
    assert why(kconfig, "SEED", CONFIG_SEED="6")[:2] == ["SEED=6", "  from       make variable CONFIG_SEED=6"]
    assert why(kconfig, "SEED")[0] == "SEED=1, its default"


def test_configwhy_explains_a_run_of_a_matrix(checkout: Path, kconfig: Run) -> None:
    tree = Tree.load(checkout)
    preset = tree.read(checkout / "defconfigs" / "default", "preset")
    axis = tree.assignments("OPTIMIZER", "adamw", Origin("matrix axis", "OPTIMIZER=sgd|adamw"))
    flag = tree.assignments("SEED", "3", Origin("flag", "--seed 3"))
    write_config(tree.resolve(preset, axis, flag), checkout / "run", root=checkout)
    assert why(kconfig, "OPTIMIZER", O="run")[1] == "  from       matrix axis OPTIMIZER=sgd|adamw"
    assert why(kconfig, "SEED", O="run")[1] == "  from       flag --seed 3"
    assert why(kconfig, "ENABLE_TRACKIO", O="run")[1] == "  from       preset defconfigs/default:1"


def test_configwhy_of_an_unknown_symbol_names_the_nearest(kconfig: Run) -> None:
    result = kconfig("configwhy", SYMBOL="lerning_rate")
    assert (result.returncode, result.stderr) == (
        2,
        "error: lerning_rate: unknown symbol\nhint: did you mean LEARNING_RATE?\n",
    )


@pytest.mark.parametrize("spelling", ["run{}", "run{}/.config"])
def test_configdiff_takes_run_directories_and_configs(checkout: Path, kconfig: Run, spelling: str) -> None:
    output(kconfig("defconfig", O="run1"))
    output(kconfig("defconfig", O="run2", CONFIG_OPTIMIZER="adam", CONFIG_SEED="2"))
    assert output(kconfig("configdiff", A=spelling.format(1), B=spelling.format(2))) == (
        "SEED: 1 -> 2\n"
        "OPTIMIZER_ADAM: n -> y\n"
        "OPTIMIZER_SGD: y -> n\n"
        'OPTIMIZER: "sgd" -> "adam"\n'
        'LEARNING_RATE: "0.1" -> "0.003"\n'
        'WEIGHT_DECAY: "0.0005" -> "0"\n'
        'OPTIMIZER_SGD_MOMENTUM: "0.9" -> (absent)\n'
        "OPTIMIZER_SGD_NESTEROV: y -> (absent)\n"
        'OPTIMIZER_ADAM_BETAS: (absent) -> "0.9 0.999"\n'
        'OPTIMIZER_ADAM_EPS: (absent) -> "1e-8"\n'
    )
    assert output(kconfig("configdiff", A="run1", B="run1")) == "no difference\n"


def test_configdiff_resolves_presets_first(kconfig: Run) -> None:
    assert output(kconfig("configdiff", A="default", B="lenet5/defconfigs/lenet5-mnist")) == (
        "DATASET_MNIST_SUBSET: y -> n\n"
        "DATASET_MNIST: n -> y\n"
        'DATASET: "mnist-subset" -> "mnist"\n'
        "BATCH_SIZE: 64 -> 128\n"
        "NUM_EPOCHS: 3 -> 15\n"
        "ENABLE_TRACKIO: y -> n\n"
    )


def test_configdiff_reads_runs_of_an_older_tree(checkout: Path, kconfig: Run) -> None:
    output(kconfig("defconfig", O="run"))
    (checkout / "old").mkdir()
    text = (checkout / "run" / ".config").read_text() + "CONFIG_LONG_GONE=3\n"
    (checkout / "old" / ".config").write_text(text)
    assert output(kconfig("configdiff", A="old", B="run")) == "LONG_GONE: 3 -> (absent)\n"


def test_configdiff_of_a_folder_without_a_config_is_refused(checkout: Path, kconfig: Run) -> None:
    result = kconfig("configdiff", A="lenet5", B="default")
    assert (result.returncode, result.stderr) == (
        2,
        "error: lenet5 holds no .config\nhint: give a run directory or a file\n",
    )
