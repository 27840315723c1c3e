"""A matrix whose cells lack something is refused before it is made, by the model's own needs.py."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from importlib import metadata
from itertools import chain
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from gpt2.needs import check_data as gpt2
from kharness.config.errors import RENDEZVOUS_FILE
from kharness.matrix.planning.needs import request_of
from kharness.training.datasets import DATASETS
from kharness.training.datasets._files import Sources
from kharness.training.datasets.cifar10 import CIFAR10
from kharness.training.errors import TrainingError
from kharness.training.needs import Check, check_common, check_device, torch_build
from lenet5.needs import check_data as lenet5
from resnet50.needs import check_data as resnet50

from ..conftest import Checkout

# What a plan has that fits every data set.
PLAN: dict[str, object] = {
    "BATCH_SIZE": 64,
    "NUM_EPOCHS": 2,
    "MAX_STEPS": 0,
    "LENET5_VALIDATION_FRACTION": 0.1,
    "RESNET50_VALIDATION_FRACTION": 0.1,
    "RESNET50_STEM": "small",
    "RESNET50_IMAGE_SIZE": 32,
    "GPT2_BLOCK_SIZE": 8,
    "GPT2_SAMPLE_TOKENS": 0,
}

# Bytes of Python's help that are trained on: the topics, each below its name.
TOPICS = len("\n".join(f"{name}\n\n{text}" for name, text in topics.items()).encode()) * 9 // 10 - 1

NEEDS = """
from kharness.training.errors import DatasetError
from kharness.training.needs import answer

def check(values):
    if values["SEED"] > 1:
        raise DatasetError(f"no data for NUM_STEPS={values['NUM_STEPS']}", hint="make data")

answer([check])
"""


@pytest.mark.parametrize("script", ["test_matrix", "test_matrix_dry_run"])
def test_what_is_missing_is_said_before_anything_is_made(checkout: Checkout, script: str) -> None:
    (checkout.root / "pretender/needs.py").write_text(NEEDS)
    asked = "CONFIG_MATRIX_AXES=SEED=1|2|3 NUM_STEPS=4|5"
    code, output = checkout.run(script, asked)
    assert (code, output.splitlines()[1:]) == (
        2,
        [
            "error: 4 of 6 cells could not begin",
            "  no data for NUM_STEPS=4 (2; make data)",
            "  no data for NUM_STEPS=5 (2; make data)",
            "hint: change what they are trained with, or bring what is missing",
        ],
    )
    code, output = checkout.run(script, "CONFIG_MATRIX_AXES=SEED=1|2")
    assert output.splitlines()[1:] == ["error: no data for NUM_STEPS=3 (1 of 2 cells)", "hint: make data"]
    assert not (checkout.root / "results").exists()


def test_what_is_missing_by_now_is_said_by_continue(checkout: Checkout) -> None:
    assert checkout.run("test_matrix", "CONFIG_BEHAVIOR=crash", "CONFIG_MATRIX_AXES=SEED=2")[0] == 3
    (checkout.root / "pretender/needs.py").write_text(NEEDS)
    for script in ("continue", "test_rerun"):
        code, output = checkout.run(script)
        assert (code, output.splitlines()[-2:]) == (2, ["error: no data for NUM_STEPS=3", "hint: make data"])
    assert len(json.loads((checkout.latest / "seed-2/status.json").read_text())["attempts"]) == 1


def test_needs_that_cannot_be_asked_are_named(checkout: Checkout) -> None:
    script = checkout.root / "pretender/needs.py"
    script.write_text("raise RuntimeError('a banana')")
    code, output = checkout.run("test_matrix")
    assert (code, output.splitlines()[1:]) == (
        2,
        [
            f"error: {script} gives no answer: RuntimeError: a banana",
            f"hint: run it by hand: {sys.executable} {script}",
        ],
    )


def test_lenet5_asks_for_its_data_and_its_device_without_torch(root: Path, tmp_path: Path) -> None:
    common = {"DEVICE": "cpu", "DATA_DIR": str(tmp_path), **PLAN}
    cells = {
        "small": {**common, "DATASET": "mnist-subset"},
        "full": {**common, "DATASET": "mnist"},
    }
    body = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    body += "; assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", body, root / "lenet5/needs.py"],
        input=json.dumps(request_of(cells)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "full": {
            "error": f"{tmp_path}/mnist/train-images-idx3-ubyte.gz does not exist",
            "hint": "make data fetches it; DATASET=mnist-subset needs no download",
        }
    }


def pictures(folder: Path) -> Path:
    """A picture to test with and ten to train on, of which one is held out."""
    for name in (
        *(f"train/cat/{i}.jpg" for i in range(6)),
        *(f"train/dog/{i}.JPEG" for i in range(4)),
        "val/cat/a.png",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"never read")
    (folder / "train/cat/notes.txt").write_text("no picture")
    return folder


def write_cifar(folder: Path) -> None:
    """Two pictures for each file of CIFAR-10 for Python, ten of them to train on."""
    folder.mkdir()
    for name in (*chain(*CIFAR10.python_files), CIFAR10.names_file):
        entries = {b"data": np.zeros((2, 3072), dtype=np.uint8), b"labels": [0, 1]}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=2))


@pytest.mark.parametrize(
    ("check", "values", "said", "hint"),
    [
        (
            lenet5,
            {"DATASET": "mnist-subset", "BATCH_SIZE": 5401},
            "BATCH_SIZE=5401 is larger than the training set of 5400 samples",
            "choose BATCH_SIZE of at most 5400",
        ),
        (
            resnet50,
            {"DATASET": "digits", "BATCH_SIZE": 5401},
            "BATCH_SIZE=5401 is larger than the training set of 5400 samples",
            "choose BATCH_SIZE of at most 5400",
        ),
        (
            resnet50,
            {"DATASET": "digits", "BATCH_SIZE": 5399, "RESNET50_STEM": "imagenet"},
            "BATCH_SIZE=5399 leaves one picture for a step, and RESNET50_STEM=imagenet one pixel of it: "
            "batch norm needs more",
            "choose BATCH_SIZE=5400, or RESNET50_STEM=small",
        ),
        (
            resnet50,
            {"DATASET": "imagefolder", "BATCH_SIZE": 10},
            "BATCH_SIZE=10 is larger than the training set of 9 samples",
            "choose BATCH_SIZE of at most 9",
        ),
        (
            resnet50,
            {"DATASET": "cifar10", "BATCH_SIZE": 10},
            "BATCH_SIZE=10 is larger than the training set of 9 samples",
            "choose BATCH_SIZE of at most 9",
        ),
        (
            lenet5,
            {"DATASET": "mnist-subset", "WARMUP_STEPS": 170},
            "WARMUP_STEPS=170 is not below the 170 steps of the training",
            "warm up for fewer steps, or train for more",
        ),
        (
            gpt2,
            {"DATASET": "text", "BATCH_SIZE": 45},
            "BATCH_SIZE=45 is larger than the training set of 44 samples",
            "choose BATCH_SIZE of at most 44",
        ),
        (
            gpt2,
            {"DATASET": "text", "BATCH_SIZE": 8, "MAX_TOKENS": 8 * 8 * 3, "WARMUP_STEPS": 3},
            "WARMUP_STEPS=3 is not below the 3 steps of the training",
            "warm up for fewer steps, or train for more",
        ),
        (
            gpt2,
            {"DATASET": "text", "GPT2_BLOCK_SIZE": 41},
            "GPT2_BLOCK_SIZE=41 is longer than the validation text of 40 tokens",
            "choose shorter blocks",
        ),
        (
            gpt2,
            {"DATASET": "text", "GPT2_SAMPLE_TOKENS": 5, "GPT2_SAMPLE_PROMPT": "a?"},
            "'?' is none of the characters of this tokenizer",
            "",
        ),
        (
            gpt2,
            {"DATASET": "pydoc-topics", "BATCH_SIZE": 10_000_000},
            f"BATCH_SIZE=10000000 is larger than the training set of {TOPICS // 8} samples",
            f"choose BATCH_SIZE of at most {TOPICS // 8}",
        ),
    ],
)
def test_what_is_too_long_for_the_data_is_refused_before_anything_is_made(
    check: Check, values: dict[str, object], said: str, hint: str, tmp_path: Path
) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("abcde fgh\n" * 40)
    given = {"DATASET_TEXT_PATH": str(text), "DATA_DIR": str(tmp_path), "TOKENIZER": "chars"}
    fits = {**PLAN, **given, "DATASET": values["DATASET"]}
    if check is resnet50:
        fits |= {"DATASET_IMAGEFOLDER_FOLDER": str(pictures(tmp_path)), "BATCH_SIZE": 8}
        write_cifar(tmp_path / "cifar-10-batches-py")
    if values["DATASET"] == "text":
        options = DATASETS.options("text", given)
        DATASETS.load("text").fetch(options, tmp_path, Sources(say=lambda _: None))
        fits["BATCH_SIZE"] = 8
    check(fits)
    with pytest.raises(TrainingError) as caught:
        check({**fits, **values})
    assert (str(caught.value), caught.value.hint) == (said, hint)


@pytest.mark.parametrize("model", ["lenet5", "gpt2", "resnet50"])
def test_each_model_asks_for_what_every_training_needs(root: Path, model: str) -> None:
    script = (root / model / "needs.py").read_text()
    assert "answer([*COMMON, check_data])" in script


@pytest.mark.parametrize(
    ("values", "said", "hint"),
    [
        (
            {"DEVICE": "auto", "NUM_GPUS": 4},
            "NUM_GPUS=4: no GPU is visible",
            "train with NUM_GPUS=1, or in 4 processes on the CPU with DEVICE=cpu",
        ),
        ({"NUM_EPOCHS": 0, "MAX_STEPS": 0}, "NUM_EPOCHS=0: nothing says how long to train", "give MAX_STEPS"),
        (
            {"WARMUP_STEPS": 5, "MAX_STEPS": 5},
            "WARMUP_STEPS=5 is not below the 5 steps of the training",
            "warm up for fewer steps",
        ),
        (
            {"OPTIMIZER_SGD_MOMENTUM": 0.0, "OPTIMIZER_SGD_NESTEROV": True},
            "OPTIMIZER_SGD_NESTEROV=y needs OPTIMIZER_SGD_MOMENTUM above 0",
            "set OPTIMIZER_SGD_NESTEROV=n",
        ),
        (
            {"OPTIMIZER_SGD_MOMENTUM": 0.0, "PRUNING": "taylor"},
            "PRUNING=taylor needs OPTIMIZER_SGD_MOMENTUM above 0",
            "without momentum SGD keeps no mean gradient",
        ),
        (
            {"PRUNING_START_FRACTION": 0.8, "PRUNING_END_FRACTION": 0.2},
            "PRUNING_START_FRACTION=0.8 comes after PRUNING_END_FRACTION=0.2",
            "pruning begins before it ends",
        ),
        (
            {"COMPILE": True, "COMPILE_BACKEND": "inductor"},
            "COMPILE=y: there is no compiler no-such-compiler",
            "install it, or train with COMPILE=n",
        ),
    ],
)
def test_what_no_training_could_begin_with(
    values: dict[str, object], said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kharness.training.needs._DRIVER_FILES", ())
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TrainingError) as caught:
        check_common({"DEVICE": "cpu", **values})
    assert (str(caught.value), caught.value.hint.startswith(hint)) == (said, True)


def test_processes_on_the_cpu_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kharness.training.needs._DRIVER_FILES", ())
    check_common({"DEVICE": "cpu", "NUM_GPUS": 4})
    monkeypatch.setenv(RENDEZVOUS_FILE, "file")  # ranks are taken as they were started
    check_common({"DEVICE": "auto", "NUM_GPUS": 4})


def test_the_build_of_torch_is_known_without_it() -> None:
    # a build for CUDA has a version of its own only within the package
    assert torch_build()["__version__"].partition("+")[0] == metadata.version("torch").partition("+")[0]


def test_a_build_without_gpus_refuses_cuda(tmp_path: Path) -> None:
    check_device({"DEVICE": "auto"}, devices=tmp_path)
    with pytest.raises(Exception, match=r"^DEVICE=cuda: (torch \S+ is a build without|no GPU is visible)"):
        check_device({"DEVICE": "cuda"}, devices=tmp_path)
