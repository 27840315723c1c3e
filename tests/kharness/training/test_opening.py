"""The loop that all trainings share, with a model of eight weights: what is called and recorded when."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.options import Options
from kharness.training.checkpoint import checkpoint_files, load
from kharness.training.errors import NonFiniteError, TrainingError
from kharness.training.opening import OwnOptimizers, Training, open_training
from kharness.training.optimizers._own import BuildOptimizers
from monitoring import read_records

PLAIN_SGD = (
    *("--optimizer", "sgd", "--optimizer-sgd-momentum", "0", "--no-optimizer-sgd-nesterov"),
    *("--schedule", "constant", "--learning-rate", "0.125", "--weight-decay", "0"),
)


@dataclass(frozen=True)
class Points:
    """Ten inputs and their sums."""

    inputs: Tensor = field(default_factory=lambda: torch.arange(80.0).reshape(10, 8).remainder(7) / 8)
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 10})
    sha256: str = "d" * 64

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.inputs[indices].sum(1, keepdim=True)


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, Points]:
    return nn.Linear(8, 1, bias=False), Points()


def loss_of(training: Training[Points], indices: Tensor) -> Tensor:
    inputs, sums = training.batch(training.data, indices)
    return F.mse_loss(training.model(inputs), sums)


Step = Callable[[Training[Points], Tensor], None]


def weight_of(training: Training[Points]) -> nn.Parameter:
    weight = training.model.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def plain(training: Training[Points], indices: Tensor) -> None:
    training.update(loss_of(training, indices))


class Train(Protocol):
    def __call__(
        self, *flags: str, step: Step = plain, run: str = "run", tracker: str = "none"
    ) -> Tensor: ...


@pytest.fixture
def train(root: Path, tmp_path: Path) -> Train:
    """Train in a directory to the end, ten samples in batches of four; returns the weights it ended with."""

    def run(*flags: str, step: Step = plain, run: str = "run", tracker: str = "none") -> Tensor:
        fixed = [
            *("--batch-size", "4", "--num-epochs", "2", "--device", "cpu", "--tracker", tracker),
            *PLAIN_SGD,
        ]
        there = (tmp_path / run / ".config").exists()
        argv = ["--run-dir", str(tmp_path / run), *([] if there else fixed), *flags]
        with open_training(argv, root=root, model="lenet5", about="", prepare=prepare) as training:
            for indices in training.steps():
                step(training, indices)
                if training.evaluation_is_due:
                    training.evaluated("val", loss=0.5, accuracy=0.25)
            assert training.finish(loss=0.75) == 0
        return weight_of(training).detach().clone()

    return run


def events(directory: Path) -> list[tuple[object, object]]:
    return [(r["event"], r.get("global_step")) for r, _ in read_records(directory / "metrics.jsonl")]


def steps(first: int, last: int) -> list[tuple[str, int]]:
    return [("step", step) for step in range(first, last + 1)]


def test_terminal_has_a_bar_of_each_epoch_and_other_output_has_the_same_lines(
    train: Train, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = train(run="plain")
    plain = capsys.readouterr().out.splitlines()
    main, other = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with open(other, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr("kharness.training.console.DRAW_EVERY", 0.0)
        assert torch.equal(train(run="shown"), weights)
        monkeypatch.undo()
    text = b""
    with contextlib.suppress(OSError):  # its other end is closed
        while chunk := os.read(main, 1 << 16):  # a terminal gives 4,095 bytes at most
            text += chunk
    os.close(main)
    shown = text.decode().removesuffix("\r\n").split("\r\n")
    bars = [bar.strip() for line in shown for bar in line.split("\x1b[K")[:-1] if bar.strip()]
    assert {re.sub(r":.*", "", bar) for bar in bars} == {"Epoch 1/2", "Epoch 2/2"}
    assert all("loss=" in bar and "lr=0.125, samples/s=" in bar for bar in bars), bars
    of_run = re.compile(
        r"/\w+(/metrics.jsonl \(.*)?$|[\d.]+ s$|run_name=.*|configuration: .*|(?<='samples_per_sec': )[\d.]+"
    )
    lines = [of_run.sub("", line.rpartition("\x1b[K")[2]) for line in shown]
    assert lines == [of_run.sub("", line) for line in plain]
    assert lines.count("{") == 1


def test_training_ends_with_the_command_that_uploads_what_is_offline(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", "k")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    train("--max-steps", "1", tracker="wandb")
    run = tmp_path / "run"
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "wandb: this run is on this disk, not uploaded; to upload it:",
        f"  wandb sync {run}/wandb/offline-run-*",
        f"  or make sync RUN={run}",
    ]


def test_an_epoch_ends_with_its_evaluation_then_its_record_then_the_checkpoint(
    train: Train, tmp_path: Path
) -> None:
    train()
    assert events(tmp_path / "run") == [
        *[("start", None), *steps(1, 3), ("eval", 3), ("epoch", 3), ("checkpoint", 3)],
        *[*steps(4, 6), ("eval", 6), ("epoch", 6), ("checkpoint", 6), ("eval", 6), ("end", None)],
    ]
    *_, test, end = (record for record, _ in read_records(tmp_path / "run" / "metrics.jsonl"))
    assert (test["split"], test["test_loss"], end["test_loss"]) == ("test", 0.75, 0.75)
    assert (end["steps_done"], end["best_val_loss"], end["best_val_accuracy"]) == (6, 0.5, 0.25)


def test_evaluations_and_checkpoints_are_due_by_steps_where_that_is_asked_for(
    train: Train, tmp_path: Path
) -> None:
    """The first evaluation is the best one, so it is saved as well; the end always is."""
    train("--evaluate-every-steps", "2", "--checkpoint-every-steps", "4")
    assert events(tmp_path / "run") == [
        *[("start", None), *steps(1, 2), ("eval", 2), ("checkpoint", 2), *steps(3, 3), ("epoch", 3)],
        *[*steps(4, 4), ("eval", 4), ("checkpoint", 4), *steps(5, 6), ("eval", 6), ("epoch", 6)],
        *[("checkpoint", 6), ("eval", 6), ("end", None)],
    ]
    epochs = [r for r, _ in read_records(tmp_path / "run" / "metrics.jsonl") if r["event"] == "epoch"]
    assert ["val_loss" in epoch for epoch in epochs] == [False, True]


def test_a_step_is_checked_for_waiting_up_to_its_record(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's sync check is on within steps, and off in evaluations, in checkpoints and after the training."""
    modes, seen = list[str](), list[tuple[str, str]]()
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", modes.append)

    def step(training: Training[Points], indices: Tensor) -> None:
        if training.step == 0:
            training._checks_waiting = True
            training._check_waiting(True)
        before = modes[-1]
        plain(training, indices)
        seen.append((before, modes[-1]))

    train("--cuda-sync-check", step=step)
    assert (seen, modes[-1]) == ([("error", "default")] * 6, "default")
    modes.clear()
    train("--cuda-sync-check", run="on the CPU")
    train(run="without")
    assert modes == []


def test_a_budget_of_minutes_ends_with_evaluation_and_checkpoint(train: Train, tmp_path: Path) -> None:
    """Any step takes longer than that; no clock is waited for."""
    train("--max-time", "1e-9", "--schedule", "constant")
    assert events(tmp_path / "run") == [
        *[("start", None), *steps(1, 1), ("eval", 1), ("epoch", 1), ("checkpoint", 1)],
        *[("eval", 1), ("end", None)],
    ]
    *_, end = (record for record, _ in read_records(tmp_path / "run" / "metrics.jsonl"))
    assert (end["status"], end["steps_done"]) == ("complete", 1)


def test_units_of_intervals_are_the_same_by_both_names(train: Train, tmp_path: Path) -> None:
    for run, flags in {
        "new": ("--eval-interval", "2", "--checkpoint-every", "4", "--checkpoint-unit", "steps"),
        "earlier": ("--evaluate-every-steps", "2", "--checkpoint-every-steps", "4"),
    }.items():
        train(*flags, run=run)
    assert events(tmp_path / "new") == events(tmp_path / "earlier")


def test_loss_is_checked_before_the_update(train: Train, tmp_path: Path) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def spoiled_third(training: Training[Points], indices: Tensor) -> None:
        weight = weight_of(training)
        seen.append((weight, weight.detach().clone()))
        training.update(loss_of(training, indices) * (math.nan if len(seen) == 3 else 1))

    with pytest.raises(NonFiniteError, match=r"^step 3: loss nan"):
        train(step=spoiled_third)
    weight, before = seen[-1]
    assert torch.equal(weight, before)
    assert events(tmp_path / "run") == [("start", None), *steps(1, 3), ("end", None)]


def test_request_to_stop_is_followed_after_the_checkpoint_and_no_bit_is_lost(
    train: Train, tmp_path: Path
) -> None:
    def stopped_in_the_second(training: Training[Points], indices: Tensor) -> None:
        plain(training, indices)
        if training.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        train(step=stopped_in_the_second)
    assert left.value.code == 75
    assert events(tmp_path / "run") == [("start", None), *steps(1, 2), ("checkpoint", 2), ("end", None)]
    resumed, undisturbed = train(), train(run="other")
    assert torch.equal(resumed, undisturbed)
    ours, theirs = (load(checkpoint_files(tmp_path / run / "checkpoints")[0]) for run in ("run", "other"))
    assert torch.equal(ours["rng"]["torch"], theirs["rng"]["torch"])
    assert (ours["data"], ours["parts"]) == (theirs["data"], theirs["parts"])

    with pytest.raises(SystemExit) as complete:
        train(step=lambda *_: pytest.fail("a complete run has no step left"))
    assert complete.value.code == 0


def test_gradients_of_micro_batches_make_one_update(train: Train, tmp_path: Path) -> None:
    def in_parts(training: Training[Points], indices: Tensor) -> None:
        for part in indices.split(2):
            training.accumulate(loss_of(training, part), share=len(part) / len(indices))
        training.update()

    torch.testing.assert_close(train(step=in_parts, run="parts"), train(run="whole"))
    found = [
        [r for r, _ in read_records(tmp_path / run / "metrics.jsonl") if r["event"] == "step"]
        for run in ("parts", "whole")
    ]
    for name in ("train_loss", "grad_norm"):
        ours, theirs = ([step[name] for step in one] for one in found)
        assert ours == pytest.approx(theirs, rel=1e-5)
    waits = [step["data_seconds"] for step in found[0]]
    assert all(isinstance(wait, float) and wait > 0 for wait in waits)


def test_clipped_gradients_are_recorded_as_they_were(train: Train, tmp_path: Path) -> None:
    moved: list[float] = []

    def clipped(training: Training[Points], indices: Tensor) -> None:
        weight = weight_of(training)
        before = weight.detach().clone()
        training.update(loss_of(training, indices), clip_norm=0.5)
        moved.append((weight - before).norm().item())

    train("--max-steps", "1", step=clipped)
    assert moved == [pytest.approx(0.125 * 0.5, rel=1e-5)]
    (norm,) = (
        r["grad_norm"] for r, _ in read_records(tmp_path / "run" / "metrics.jsonl") if r["event"] == "step"
    )
    assert isinstance(norm, float)
    assert norm > 0.5


def test_step_without_an_update_is_an_error_and_no_endless_loop(train: Train) -> None:
    with pytest.raises(RuntimeError, match=r"each step of a training calls update\(\) once"):
        train(step=lambda training, indices: None)


def test_own_metrics_are_means_of_the_step_and_stand_in_its_record(train: Train, tmp_path: Path) -> None:
    def step(training: Training[Points], indices: Tensor) -> None:
        training.record(first=1, second=torch.tensor([float(training.step)], requires_grad=True))
        plain(training, indices)

    train("--max-steps", "2", step=step)
    found = [r for r, _ in read_records(tmp_path / "run/metrics.jsonl") if r["event"] == "step"]
    assert [(record["first"], record["second"]) for record in found] == [(1, 0.0), (1, 1.0)]


@pytest.mark.parametrize(
    ("metrics", "error", "hint"),
    [
        (
            {"lr": 1.0},
            "record(lr=…): each step record has a lr already",
            "choose another name, such as own_lr",
        ),
        (
            {"spread": torch.ones(2, 3)},
            "record(spread=…): a tensor of shape (2, 3) is no single number",
            "record its mean: training.record(spread=value.mean())",
        ),
        ({"name": "x"}, "record(name=…): str is no number", "record numbers, or tensors of one element"),
    ],
)
def test_own_metric_that_cannot_be_recorded_is_refused(
    train: Train, metrics: dict[str, float | Tensor], error: str, hint: str
) -> None:
    def step(training: Training[Points], indices: Tensor) -> None:
        training.record(**metrics)
        plain(training, indices)

    with pytest.raises(TrainingError) as caught:
        train("--max-steps", "2", step=step)
    assert (str(caught.value), caught.value.hint) == (error, hint)


def test_reported_part_of_the_loss_is_recorded_unless_the_loss_is_not_finite(
    train: Train, tmp_path: Path
) -> None:
    def step(training: Training[Points], indices: Tensor) -> None:
        loss = loss_of(training, indices)
        other = weight_of(training).sum() * (math.inf if training.step == 2 else 1)
        training.update(loss + other, report=loss.detach() * 0 + 7)

    with pytest.raises(NonFiniteError, match=r"step 3: loss -?inf"):
        train("--max-steps", "4", step=step)
    found = [r for r, _ in read_records(tmp_path / "run/metrics.jsonl") if r["event"] == "step"]
    assert [record["train_loss"] for record in found] == [7.0, 7.0, None]


def test_gradients_that_are_changed_are_those_that_are_judged_clipped_and_applied(
    train: Train, tmp_path: Path
) -> None:
    before: list[Tensor] = []

    def step(training: Training[Points], indices: Tensor) -> None:
        before.append(weight_of(training).detach().clone())
        training.accumulate(loss_of(training, indices))
        [gradient] = training.gradients().values()
        gradient.copy_(torch.tensor([[3.0, 4.0, 0, 0, 0, 0, 0, 0]]))
        training.update(clip_norm=1.0)

    weight = train("--max-steps", "1", step=step)
    torch.testing.assert_close(weight, before[0] - 0.125 * torch.tensor([[0.6, 0.8, 0, 0, 0, 0, 0, 0]]))
    found = [r for r, _ in read_records(tmp_path / "run/metrics.jsonl") if r["event"] == "step"]
    assert found[0]["grad_norm"] == 5.0


@pytest.mark.parametrize("apart", [False, True])
def test_gradients_in_another_memory_order_than_their_weights_are_applied(
    root: Path, tmp_path: Path, apart: bool
) -> None:
    """Fused optimizers go through memory; gradients of convolutions by torch.autograd.grad are often so."""

    def prepared(options: Options, device: torch.device) -> tuple[nn.Module, Points]:
        return nn.ModuleDict({"one": nn.Linear(4, 2), "other": nn.Linear(4, 2)}).double(), Points()

    def own(model: nn.Module, options: Options) -> OwnOptimizers:
        critic = torch.optim.SGD(model.get_submodule("other").parameters(), lr=0.125, fused=True)
        return OwnOptimizers(apart={"critic": critic} if apart else {})

    argv = ["--run-dir", str(tmp_path / "run"), "--device", "cpu", "--batch-size", "4", *PLAIN_SGD]
    wanted = torch.arange(8.0).double().view(2, 4)
    turned = wanted.t().contiguous()
    with open_training(
        [*argv, "--max-steps", "1"], root=root, model="lenet5", about="", prepare=prepared, optimizers=own
    ) as training:
        named = dict(training.module.named_parameters())
        before = {name: weight.detach().clone() for name, weight in named.items()}
        for _ in training.steps():
            if apart:
                training.update_apart("critic", (named["other.weight"].t() * turned).sum())
            training.accumulate(torch.zeros(()).double(), gradients={"one.weight": turned.t()})
            training.update()
    changed = {name: (before[name] - weight.detach()) / 0.125 for name, weight in named.items()}
    torch.testing.assert_close(changed["one.weight"], wanted)
    if apart:
        torch.testing.assert_close(changed["other.weight"], wanted)


def test_own_optimizers_are_in_the_start_record(root: Path, tmp_path: Path) -> None:
    def own(model: nn.Module, options: Options) -> OwnOptimizers:
        _, bias = model.parameters()
        return OwnOptimizers(beside=[torch.optim.SGD([bias], lr=0.5)])

    def prepared(options: Options, device: torch.device) -> tuple[nn.Module, Points]:
        return nn.Linear(8, 1), Points()

    argv = ["--run-dir", str(tmp_path / "run"), "--device", "cpu", "--batch-size", "4", *PLAIN_SGD]
    with open_training(argv, root=root, model="lenet5", about="", prepare=prepared, optimizers=own):
        pass
    start: Any = next(record for record, _ in read_records(tmp_path / "run/metrics.jsonl"))["optimizer"]
    assert [group["names"] for group in start["groups"]] == [["weight"]]
    assert start["own_optimizers"] == ["SGD 0.5"]
    assert start["own_groups"] == [
        {"optimizer": "SGD", "names": ["bias"], "count": 1, "weight_decay": 0, "learning_rate": 0.5}
    ]


@pytest.mark.parametrize(
    ("own", "error"),
    [
        (
            lambda model, _: OwnOptimizers(beside=[torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)]),
            "each parameter of an optimizer of your own belongs to the model, and to no other of them",
        ),
        (
            lambda model, _: OwnOptimizers(apart={"all": torch.optim.SGD(model.parameters(), lr=0.1)}),
            "optimizers of your own leave no parameter to OPTIMIZER, whose LEARNING_RATE schedules all",
        ),
    ],
)
def test_own_optimizers_that_cannot_be_are_refused(
    root: Path, tmp_path: Path, own: BuildOptimizers, error: str
) -> None:
    argv = ["--run-dir", str(tmp_path / "run"), "--device", "cpu", "--batch-size", "4", *PLAIN_SGD]
    with (
        pytest.raises(TrainingError) as caught,
        open_training(argv, root=root, model="lenet5", about="", prepare=prepare, optimizers=own),
    ):
        pass
    assert str(caught.value) == error
    assert not (tmp_path / "run").exists()
