"""Every optimizer resumes bit for bit, works with micro-batches, and learns digits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.assignment import Origin
from kharness.config.options import Options, parse
from kharness.config.tree import Tree
from kharness.training.checkpoint import checkpoint_files, load
from kharness.training.errors import TrainingError
from kharness.training.opening import Training, open_training
from kharness.training.optimizers import OPTIMIZERS, build_optimizer
from kharness.training.optimizers._averages import weights_of
from kharness.training.saving.hashed import state_sha256
from kharness.training.schedules import set_learning_rate
from lenet5.data import Splits, load_splits
from lenet5.model import LeNet5

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS.names)

# Options with which what happens rarely happens within a few steps.
OFTEN = {
    "adamwspam": [
        *("--optimizer-adamwspam-clip", "--optimizer-adamwspam-reset-every", "3"),
        *("--optimizer-adamwspam-warmup-steps", "2"),
    ],
    "ademamix": ["--optimizer-ademamix-warmup-steps", "6"],
    "schedulefree": ["--optimizer-schedulefree-warmup-steps", "6"],
    "soap": ["--optimizer-soap-precondition-every", "2"],
    "spam": [
        *("--optimizer-spam-reset-every", "3", "--optimizer-spam-clip-after", "1"),
        *("--optimizer-spam-warmup-steps", "2"),
    ],
}


@dataclass(frozen=True)
class Pictures:
    """Twelve small pictures of three kinds."""

    images: Tensor = field(
        default_factory=lambda: torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    )
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 12})
    sha256: str = "e" * 64

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.images[indices], indices % 3


def network() -> nn.Sequential:
    """A convolution, a norm, a hidden matrix and a last layer, with zeros in none of them."""
    return nn.Sequential(
        *(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 3))
    )


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, Pictures]:
    return network(), Pictures()


Begin = Callable[..., None]


@pytest.fixture
def train(root: Path, tmp_path: Path) -> Begin:
    """Train by micro-batches, pruned and evaluated as it goes, or until a step after which it is to stop."""

    def step(training: Training[Pictures], indices: Tensor) -> None:
        for part in indices.split(2):
            images, kinds = training.batch(training.data, part)
            loss = F.cross_entropy(training.model(images), kinds)
            training.accumulate(loss, share=len(part) / len(indices))
        training.update()

    def run(name: str, folder: str, *, stop_after: int | None = None) -> None:
        flags = [
            *("--optimizer", name, "--batch-size", "4", "--num-epochs", "3", "--device", "cpu"),
            *("--tracker", "none", "--evaluate-every-steps", "3", "--checkpoint-every", "0"),
            *("--pruning", "magnitude", "--pruning-every", "1", *OFTEN.get(name, [])),
        ]
        directory = tmp_path / folder
        argv = ["--run-dir", str(directory), *([] if (directory / ".config").exists() else flags)]
        with open_training(argv, root=root, model="lenet5", about="", prepare=prepare) as training:
            for indices in training.steps():
                step(training, indices)
                if training.evaluation_is_due:
                    training.evaluated("val", loss=1.0)
                if training.step == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
            training.finish()

    return run


@every_optimizer
def test_resumed_training_goes_on_bit_for_bit(train: Begin, tmp_path: Path, name: str) -> None:
    """Stopped in the middle of everything: of accumulating, warming up, forgetting, pruning and averaging."""
    train(name, "undisturbed")
    with pytest.raises(SystemExit):
        train(name, "stopped", stop_after=4)
    train(name, "stopped")
    states = [load(checkpoint_files(tmp_path / run / "checkpoints")[0]) for run in ("undisturbed", "stopped")]
    parts = ("model", "optimizer", "pruning", *({"trained_weights"} & set(states[0]["parts"])))
    ours, theirs = ({part: state_sha256(state[part]) for part in parts} for state in states)
    assert (states[1]["attempt"], states[1]["global_step"]) == (2, 9)
    assert ours == theirs
    weights = [value for key, value in states[0]["model"].items() if value.ndim > 1]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    assert zeros == round(0.5 * sum(weight.numel() for weight in weights))


@pytest.fixture(scope="module")
def symbols(root: Path) -> Callable[[str], Mapping[str, Any]]:
    """The defaults of an optimizer."""
    tree = Tree.load(root)

    def of(name: str) -> Mapping[str, Any]:
        return tree.resolve(tree.assignments("OPTIMIZER", name, Origin("test"))).values

    return of


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS.names} - {"soap"}))
def test_micro_batches_make_the_step_of_the_batch(
    name: str, symbols: Callable[[str], Mapping[str, Any]]
) -> None:
    """In double precision, but for Muon's iteration in bfloat16.

    SOAP is left out: of a matrix with more columns than rows its first eigenbasis is partly arbitrary, and
    rounding decides.
    """
    pictures, ends = Pictures(), []
    for size in (12, 4):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 5), nn.Linear(5, 3)).double()
        optimizer, _ = build_optimizer(name, model, symbols(name))
        weights = weights_of(model, optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            for part in torch.arange(12).split(size):
                images, kinds = pictures.batch(part)
                (F.cross_entropy(model(images.double()), kinds) * (size / 12)).backward()
            optimizer.step()
        weights.to_evaluate()
        ends.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    tolerance = 1e-2 if name == "muon" else 1e-9
    torch.testing.assert_close(*ends, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def digits(root: Path) -> Splits:
    """Those that ship with the repository."""
    argv = ["--device", "cpu", "--tracker", "none", "--dataset", "mnist-subset"]
    options, _ = parse(argv, root=root, model="lenet5", prog="", description="")
    return load_splits(options, root=root, device=torch.device("cpu"))


@every_optimizer
def test_lenet5_learns_digits(digits: Splits, name: str, symbols: Callable[[str], Mapping[str, Any]]) -> None:
    """Forty steps at the default rate raise the accuracy from a tenth to more than 0.4."""
    torch.manual_seed(1)
    model = LeNet5()
    optimizer, _ = build_optimizer(name, model, symbols(name))
    weights = weights_of(model, optimizer)
    set_learning_rate(optimizer, symbols(name)["LEARNING_RATE"])
    for step in range(40):
        images, labels = digits.train.batch(torch.arange(32 * step, 32 * (step + 1)))
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    weights.to_evaluate()
    with torch.inference_mode():
        images, labels = digits.validation.images[:300], digits.validation.labels[:300]
        assert (model(images).argmax(1) == labels).float().mean().item() > 0.4


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pytorch_optimizer", None)
    options = {"LEARNING_RATE": 0.1, "WEIGHT_DECAY": 0.0, "OPTIMIZER_LION_BETAS": [0.9, 0.99]}
    with pytest.raises(TrainingError) as caught:
        build_optimizer("lion", nn.Linear(2, 2), options)
    assert str(caught.value) == "OPTIMIZER=lion needs pytorch_optimizer, which is not installed"
    assert caught.value.hint == "pip install pytorch_optimizer"
