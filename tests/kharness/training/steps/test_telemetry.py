"""INCLUDE_PERFORMANCE_METRICS in a training of the loop: its files, its records, and that results stay."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gpt2.model import GPT2, Shape
from kharness.training.checkpoint import checkpoint_files, load
from kharness.training.determinism import Numerics
from kharness.training.fake_tensors import ModelWithoutValues
from kharness.training.mfu import before_first_call, by_type
from lenet5.model import LeNet5
from monitoring import read_records
from resnet50.model import ResNet

from ....warm_python import WarmPython

FLAGS = (
    *("--batch-size", "10", "--num-epochs", "2", "--device", "cpu", "--tracker", "none", "--log-every", "1"),
    *("--learning-rate", "0.05", "--checkpoint-every-steps", "3"),
)


def trained(
    warm: WarmPython, root: Path, run: Path, *flags: str, code: int = 0, **env: str
) -> list[dict[str, Any]]:
    """The records of tests/data/ddp/train.py: two epochs of three steps."""
    given = (*FLAGS, *flags) if flags else ()
    done = warm.run([root / "tests/data/ddp/train.py", "--run-dir", run, *given], env={**os.environ, **env})
    assert done.returncode == code, done.stderr
    (run / "printed").write_text(done.stdout)
    return [dict(record) for record, _ in read_records(run / "metrics.jsonl")]


def test_a_training_writes_its_telemetry_and_the_same_numbers(
    warm_torch: WarmPython, root: Path, tmp_path: Path
) -> None:
    plain = trained(warm_torch, root, tmp_path / "plain", "--seed", "1")
    records = trained(
        warm_torch,
        root,
        tmp_path / "run",
        *("--include-performance-metrics", "--include-timer-metrics", "--no-world-process-zero-only"),
    )
    for name in ("train_loss", "grad_norm"):
        assert [it.get(name) for it in records] == [it.get(name) for it in plain]
    steps = [it for it in records if it["event"] == "step"]
    assert [(it["step_mfu"], it["overall_mfu"]) for it in steps] == [(None, None)] * 6
    assert steps[0]["rank000_steps_mean"] > 0
    assert not any(name.startswith("rank0") for it in plain for name in it)
    found = json.loads((tmp_path / "run/telemetry/telemetry_callback_rank0000.json").read_text())
    counts = {name: timer["count"] for name, timer in found["timers"].items()}
    assert counts == {"microsteps": 6, "steps": 6, "epochs": 2}
    assert sorted(os.listdir(tmp_path / "run/telemetry")) == [
        "telemetry_callback_all_ranks.json",
        "telemetry_callback_metrics_rank0000.json",
        "telemetry_callback_rank0000.json",
    ]
    assert not (tmp_path / "plain/telemetry").exists()
    # 8 x 16 and 16 x 1 weights: forward, both gradients, but none of the inputs
    flops = 10 * (6 * (8 * 16 + 16) - 2 * 8 * 16)
    assert records[-1]["flops_per_step"] == flops
    line = f"MFU: not computed: no peak FLOP/s known of cpu; {flops:.3g} FLOPs per step"
    assert line in (tmp_path / "run/printed").read_text().splitlines()


def test_a_training_records_its_activations_and_the_same_numbers(
    warm_torch: WarmPython, root: Path, tmp_path: Path
) -> None:
    """Also of a step that LOGGING_STRATEGY leaves out."""
    plain = trained(warm_torch, root, tmp_path / "plain", "--seed", "1")
    flags = ("--activation-statistics-every", "2", "--logging-strategy", "epoch")
    records = trained(warm_torch, root, tmp_path / "run", *flags)
    models = [
        load(checkpoint_files(tmp_path / name / "checkpoints")[0])["model"] for name in ("plain", "run")
    ]
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())
    losses = {it["global_step"]: it["train_loss"] for it in plain if it["event"] == "step"}
    steps = {it["global_step"]: it for it in records if it["event"] == "step"}
    assert {step: it["train_loss"] for step, it in steps.items()} == {
        step: losses[step] for step in (2, 3, 4, 6)
    }
    layers = {
        step: {name[16:] for name in it if name.startswith("activation_mean/")} for step, it in steps.items()
    }
    both = {"0", "0.0", "1"}  # the block of a linear layer, that layer, and the last one
    assert layers == {2: both, 3: set(), 4: both, 6: both}
    assert steps[6]["activation_std/0.0"] > 0


def test_a_resumed_training_continues_its_timers(warm_torch: WarmPython, root: Path, tmp_path: Path) -> None:
    """Killed at step 5, resumed after step 3."""
    run = tmp_path / "run"
    trained(warm_torch, root, run, "--include-performance-metrics", code=-9, FAULT="kill:0:5")
    before = load(checkpoint_files(run / "checkpoints")[0])["timers"]
    assert [rank["timers"]["steps"]["count"] for rank in before] == [3]
    trained(warm_torch, root, run)
    found = json.loads((run / "telemetry/telemetry_callback_rank0000.json").read_text())
    assert (found["timers"]["steps"]["count"], found["timers"]["epochs"]["count"]) == (6, 2)
    assert found["total_time"] > before[0]["total_time"]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_first_call_in_training_is_seen_once(is_compiled: bool) -> None:
    model, seen = torch.nn.Linear(3, 2), []
    if is_compiled:
        model.compile(backend="eager")
    compiled = model._compiled_call_impl
    expected = model(torch.ones(4, 3))
    before_first_call(model, lambda inputs, _: seen.append(inputs[0].shape))
    with torch.inference_mode():
        model.eval()(torch.ones(5, 3))
    model.train()
    assert torch.equal(model(torch.ones(4, 3)), expected)
    model(torch.ones(6, 3))
    assert seen == [(4, 3)]
    assert model._compiled_call_impl is compiled


class Twice(torch.nn.Module):
    """Computes its first half again in backward."""

    def __init__(self, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
        self.last, self.is_checkpointed = torch.nn.Linear(8, 4), is_checkpointed

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = (
            checkpoint(self.first, values, use_reentrant=False)
            if self.is_checkpointed
            else self.first(values)
        )
        found: torch.Tensor = self.last(hidden)
        return found


def test_what_is_computed_twice_is_not_the_model_s() -> None:
    plain, twice = (ModelWithoutValues(Twice(is_checkpointed=value)) for value in (False, True))
    inputs = [torch.ones(5, 8)]
    (_, flops), (_, with_both) = plain.step(inputs), twice.step(inputs)
    assert flops is not None
    assert with_both is not None
    assert plain.recomputed.total() == 0
    # nobody needs the output of its last layer again, so torch stops before it
    assert twice.recomputed.total() > 0
    assert with_both - twice.recomputed.total() == flops


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "lenet5": lambda: (LeNet5(), torch.randn(4, 1, 28, 28)),
    "gpt2": lambda: (
        GPT2(Shape(vocabulary=64, block_size=16, layers=2, heads=2, width=64)),
        torch.randint(64, (2, 16)),
    ),
    "resnet50": lambda: (ResNet(10, blocks=(1, 1, 1, 1)), torch.randn(2, 3, 32, 32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_without_values_are_those_of_a_real_step(name: str) -> None:
    """FLOPs match torch's counter on the math kernel; it does not know the CPU's fused attention."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    _, flops = ModelWithoutValues(model).step([inputs])
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        model(inputs).sum().backward()
    assert flops == pytest.approx(counter.get_total_flops(), rel=0.02)


class Returns(torch.nn.Module):
    """Two linear layers, whose outputs it returns in a form."""

    def __init__(self, form: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.first, self.second, self.form = torch.nn.Linear(8, 4), torch.nn.Linear(8, 2), form

    def forward(self, *, values: torch.Tensor) -> object:
        return self.form(self.first(values), self.second(values))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda first, second: (first, second), 2 * 2 * 5 * 8 * (4 + 2)),
        (
            lambda first, second: {"logits": first, "aux": [second, None], "name": "x"},
            2 * 2 * 5 * 8 * (4 + 2),
        ),
        (lambda first, second: {"logits": first, "aux": second.detach()}, 2 * 5 * 8 * (2 * 4 + 2)),
        (lambda first, second: "text", None),
    ],
)
def test_a_model_may_return_anything_and_be_called_by_names(
    form: Callable[[torch.Tensor, torch.Tensor], object], expected: int | None
) -> None:
    """Forward and the product for the weights' gradients: 2 x 5 x 8 x outputs each; the input has none."""
    counted = ModelWithoutValues(Returns(form)).step([], {"values": torch.ones(5, 8)})
    assert counted[1] == expected


def flops_by_type(
    model: torch.nn.Module, inputs: torch.Tensor, capability: str | None, *, tf32_matmul: bool = False
) -> dict[str, float]:
    """FLOPs of a step by type, on a GPU of the compute capability with torch's settings for TF32."""
    counted = ModelWithoutValues(model)
    _, whole = counted.step([inputs])
    numerics = Numerics.of(torch.device("cpu"))
    numerics = replace(numerics, compute_capability=capability, tf32_matmul=tf32_matmul)
    found = by_type(counted.flops, numerics)
    assert sum(found.values()) == whole
    return found


def test_flops_count_by_what_they_are_computed_in() -> None:
    """torch computes float32 convolutions in TF32 by default, and matrix products not."""
    pictures = torch.randn(2, 3, 32, 32)
    last = 6 * 2 * 2048 * 10
    for capability, convolutions in (("8.0", "tf32"), ("7.5", "float32"), (None, "float32")):
        found = flops_by_type(ResNet(10, blocks=(1, 1, 1, 1)), pictures, capability)
        whole = sum(found.values())
        if convolutions == "tf32":
            assert found == {"tf32": whole - last, "float32": last}
        else:
            assert found == {"float32": whole}
    found = flops_by_type(ResNet(10, blocks=(1, 1, 1, 1)), pictures, "9.0", tf32_matmul=True)
    assert list(found) == ["tf32"]
    found = flops_by_type(ResNet(10, blocks=(1, 1, 1, 1), bf16=True), pictures, "9.0")
    assert list(found) == ["bfloat16"]
    found = flops_by_type(torch.nn.Linear(4, 2, dtype=torch.float64), torch.ones(3, 4).double(), "9.0")
    assert found == {"float64": 2 * 2 * 3 * 4 * 2}
