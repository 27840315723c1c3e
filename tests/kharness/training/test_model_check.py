"""DRY_RUN and `make check-model`: what a step takes, and that nothing is left of it."""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kharness.config.options import parse
from kharness.runs.exit_codes import EXIT_STOPPED
from kharness.training.distributed.world import ALONE
from kharness.training.errors import NonFiniteError, OutOfMemoryError
from kharness.training.fake_tensors import ModelWithoutValues
from kharness.training.model_check import (
    ModelCheck,
    estimated_memory,
    free_memory,
    measured_memory,
)
from kharness.training.opening import open_training
from kharness.training.optimizers import OPTIMIZERS, build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.setup import Setup
from lenet5.model import LeNet5
from lenet5.train import prepare

from ...warm_python import WarmPython

Check = Callable[..., subprocess.CompletedProcess[str]]

FIXED = ("--device", "cpu", "--num-threads", "1", "--tracker", "none")
GPT2 = ("--gpt2-layers", "1", "--gpt2-width", "16", "--gpt2-block-size", "64", "--gpt2-dropout", "0")
RESNET50 = ("--dataset", "digits", "--resnet50-width", "4", "--resnet50-blocks", "1 1 1 1")


@pytest.fixture
def check(root: Path, warm_torch: WarmPython, tmp_path: Path) -> Check:
    """A script of the checkout, with tmp_path/tmp for its temporary folders and tmp_path/results."""
    (tmp_path / "tmp").mkdir()

    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        return warm_torch.run([root / script, *arguments], cwd=tmp_path, env=environment)

    return run


def dry_run(check: Check, tmp_path: Path, model: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return check(f"{model}/train.py", "--dry-run", "--results-dir", str(tmp_path / "results"), *FIXED, *flags)


def left(tmp_path: Path) -> list[str]:
    """Besides the cache that torch makes when its first optimizer is imported."""
    found = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))]
    return [path for path in found if "torchinductor" not in path]


def memory(output: str) -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^  (\w[\w ]+?) +([\d.]+ \w+|-) +([\d.]+ \w+|-)$", output, flags=re.M)
    return {name: (estimated, measured) for name, estimated, measured in rows}


def test_lenet5_has_the_memory_and_flops_of_its_shapes(check: Check, tmp_path: Path) -> None:
    done = dry_run(check, tmp_path, "lenet5", "--dataset", "mnist-subset", "--optimizer", "adamw")
    assert (done.returncode, done.stderr, left(tmp_path)) == (0, "", ["tmp"])
    lines = done.stdout.splitlines()
    assert "parameters: 61,706" in lines
    found = memory(done.stdout)
    assert found["weights"] == found["gradients"] == ("246.8 kB", "246.8 kB")
    # Two moments, and where a step is not fused a count for each of ten parameters.
    assert found["optimizer state"] == ("493.7 kB", "493.7 kB")
    macs = 28 * 28 * 6 * 25, 10 * 10 * 16 * 150, 400 * 120, 120 * 84, 84 * 10
    flops = 64 * (6 * sum(macs) - 2 * macs[0])  # no gradient of the pictures
    assert f"FLOPs per step: {flops:.3g}, forward and backward" in lines
    (expected,) = (line for line in lines if line.startswith("expected: "))
    assert expected.endswith(" for 1275 steps, 15 evaluations and 15 checkpoints")
    assert [line.split(":")[0] for line in lines[-4:]] == ["step", "evaluation", "checkpoint", "expected"]


def test_gpt2_takes_one_micro_batch_of_a_step(check: Check, tmp_path: Path) -> None:
    flags = ("--batch-size", "12", "--micro-batch-size", "4", "--eval-interval", "10", "--max-steps", "21")
    done = dry_run(check, tmp_path, "gpt2", *GPT2, *flags)
    assert (done.returncode, done.stderr, left(tmp_path)) == (0, "", ["tmp"])
    assert re.search(r"^step: .* s, 3 micro-batches, ", done.stdout, flags=re.M)
    assert done.stdout.endswith(" for 21 steps, 4 evaluations and 1 checkpoint\n")
    width, vocabulary, tokens = 16, 256, 12 * 64
    products = 12 * width**2 + width * vocabulary
    # Attention is two products forward; backward computes the scores again, then the gradients of both.
    attention = tokens * 2 * 64 * width * (2 + 5)
    flops = 6 * tokens * products + attention
    assert f"FLOPs per step: {flops:.3g}, forward and backward" in done.stdout.splitlines()


@pytest.mark.parametrize("flags", [(), ("--compile", "--compile-backend", "aot_eager")])
def test_compilation_is_told_before_the_step_that_waits_for_it(
    check: Check, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = dry_run(check, tmp_path, "gpt2", *GPT2, "--max-steps", "3", "--eval-interval", "1", *flags)
    assert [line for line in done.stdout.splitlines() if line.startswith(("plan", "note"))] == [
        "plan: 3 steps of 64 samples of 64 tokens, adamw, cosine",
        *["note: the model is compiled in its first step, which takes longer"] * bool(flags),
    ]


def test_resnet50_evaluates_its_average_too(check: Check, tmp_path: Path) -> None:
    done = dry_run(check, tmp_path, "resnet50", *RESNET50, "--batch-size", "8", "--ema-decay", "0.9")
    assert (done.returncode, done.stderr, left(tmp_path)) == (0, "", ["tmp"])
    found = memory(done.stdout)
    assert list(found) == ["weights", "gradients", "optimizer state", "activations", "total"]
    for part in ("weights", "gradients", "optimizer state"):
        assert found[part][0] == found[part][1] != "-"


def test_what_can_be_fixed_is_one_error(check: Check, tmp_path: Path) -> None:
    done = dry_run(check, tmp_path, "lenet5", "--dataset", "mnist-subset", "--batch-size", "5401")
    assert (done.returncode, left(tmp_path)) == (2, ["tmp"])
    assert done.stderr.splitlines() == [
        "error: BATCH_SIZE=5401 is larger than the training set of 5400 samples",
        "hint: choose BATCH_SIZE of at most 5400",
    ]


@pytest.mark.parametrize(
    ("script", "more"), [("scripts/check_model.py", []), ("scripts/train.py", ["CONFIG_DRY_RUN=y"])]
)
def test_make_checks_what_is_configured(check: Check, tmp_path: Path, script: str, more: list[str]) -> None:
    symbols = ["DEVICE_CPU=y", "DATASET=mnist-subset", "OPTIMIZER=sgd", "MAX_STEPS=7"]
    variables = [f"CONFIG_{symbol}" for symbol in symbols]
    done = check(script, f"O={tmp_path / 'out'}", *variables, *more)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("configuration")] == [
        "configuration: lenet5, preset default; DEVICE=cpu MAX_STEPS=7 DRY_RUN=y"
    ]
    assert [line for line in done.stdout.splitlines() if ".config yet" in line] == [
        f"no {tmp_path / 'out/.config'} yet: starting from defconfigs/default"
    ]
    assert "kharness-check-" not in done.stdout
    assert "\nexpected: " in done.stdout
    assert done.stdout.endswith(" for 7 steps, 1 evaluation and 1 checkpoint\n")
    assert left(tmp_path) == ["tmp"]


@pytest.mark.parametrize("script", ["scripts/test_matrix.py", "scripts/test_matrix_dry_run.py"])
def test_a_matrix_of_it_is_refused(check: Check, tmp_path: Path, script: str) -> None:
    results = f"CONFIG_RESULTS_DIR={tmp_path / 'results'}"
    done = check(script, f"O={tmp_path / 'out'}", results, "CONFIG_DRY_RUN=y", "CONFIG_MATRIX_AXES=SEED=1|2")
    assert (done.returncode, left(tmp_path)) == (2, ["tmp"])
    assert done.stderr.splitlines() == [
        "error: DRY_RUN=y: nothing is trained that a matrix could compare",
        "hint: make check-model checks one training, make test_matrix_dry_run prints a matrix",
    ]


@pytest.mark.parametrize(("factor", "ends"), [(1.0, SystemExit), (math.nan, NonFiniteError)])
def test_a_step_that_is_stopped_or_not_finite_leaves_nothing(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
    ends: type[BaseException],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flags = ["--dry-run", "--dataset", "mnist-subset", *FIXED]
    opened = open_training(flags, root=root, model="lenet5", about=None, prepare=prepare)

    def train() -> None:
        with opened as training:
            for indices in training.steps():
                images, labels = training.batch(training.data.train, indices)
                training.update(factor * F.cross_entropy(training.model(images), labels))
                assert len(left(tmp_path)) > 1
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(ends) as caught:
        train()
    assert getattr(caught.value, "code", None) == (None if ends is NonFiniteError else EXIT_STOPPED)
    assert left(tmp_path) == []


def test_what_does_not_fit_is_not_begun(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--dataset", "mnist-subset", *FIXED]
    options, _ = parse(flags, root=root, model="lenet5", prog="train.py", description="")
    setup = Setup(options, prepare, ALONE)
    ModelCheck(setup, free=lambda device: 1_000_000)
    with pytest.raises(OutOfMemoryError) as caught:
        setup.model(torch.zeros(64, 1, 28, 28))
    assert re.fullmatch(
        r"a step needs about 3\.\d\d MB besides the weights; 1\.00 MB are free on cpu", str(caught.value)
    )
    assert caught.value.hint == "lower BATCH_SIZE, or choose a smaller model"
    assert memory(capsys.readouterr().out)["weights"] == ("246.8 kB", "-")


@pytest.mark.parametrize("name", OPTIMIZERS.names)
def test_the_state_of_an_optimizer_is_known_before_its_step(root: Path, name: str) -> None:
    options, _ = parse(["--optimizer", name], root=root, model="lenet5", prog="train.py", description="")
    model = LeNet5()
    estimated = estimated_memory(model, name, options.values)
    optimizer, _ = build_optimizer(name, model, options.values)
    weights_of(model, optimizer).to_train()
    model(torch.zeros(2, 1, 28, 28)).sum().backward()
    optimizer.step()
    measured = measured_memory(model, optimizer, 0)
    assert (estimated.weights, estimated.gradients) == (measured.weights, measured.gradients)
    looks_at_values = name == "adafactor"
    assert estimated.optimizer_state == (None if looks_at_values else measured.optimizer_state)


def test_a_model_that_looks_at_values_is_not_estimated() -> None:
    class Looks(torch.nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(given) * given.sum().item()

    assert ModelWithoutValues(Looks(3, 2)).step([torch.ones(4, 3)]) == (None, None)
    # The input and nothing else: a weight is no activation. Input needs no gradient: 2 products of 2 * 4*3*2.
    assert ModelWithoutValues(torch.nn.Linear(3, 2)).step([torch.ones(4, 3)]) == (4 * 3 * 4, 2 * 2 * 24)


def test_free_memory_of_a_gpu_has_what_torch_only_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (300, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 600)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500)
    assert free_memory(torch.device("cuda", 0)) == 400


def test_free_memory_is_what_the_system_says(tmp_path: Path) -> None:
    cpu, proc = torch.device("cpu"), tmp_path / "proc"
    assert free_memory(cpu, tmp_path) is None
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:      7 kB\n")
    assert free_memory(cpu, tmp_path) == 7 * 1024
    (proc / "self/cgroup").write_text("0::/\n")
    (proc / "self/mountinfo").write_text("30 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cg").mkdir()
    for name, text in (("max", "5000\n"), ("current", "4000\n"), ("stat", "inactive_file 100\n")):
        (tmp_path / f"cg/memory.{name}").write_text(text)
    assert free_memory(cpu, tmp_path) == 1100
    # A limit of the process itself, which the other files leave room for.
    (proc / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {10**12} kB\n")
    (tmp_path / "cg/memory.max").write_text("max\n")
    (proc / "self/status").write_text("VmSize:    2000 kB\nVmData:    1000 kB\n")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (10**13, before[1]))
    try:
        assert free_memory(cpu, tmp_path) == 10**13 - 2000 * 1024
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
