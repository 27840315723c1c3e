"""The device that was asked for, or an error: nothing falls back."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
import torch

from kharness.config.errors import KharnessError
from kharness.config.options import parse
from kharness.training.checkpoint import checkpoint_files, load
from kharness.training.determinism import Numerics, set_tf32
from kharness.training.device import Device, choose_device, compile_model, set_threads
from kharness.training.errors import DeviceError
from monitoring import read_records

from ...warm_python import WarmPython


def test_cpu_has_no_gpu_memory() -> None:
    device = choose_device("cpu")
    assert str(device) == "cpu (requested)"
    assert device.memory() == {"gpu_mem_allocated": None, "gpu_mem_reserved": None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible")
def test_auto_without_a_gpu_says_why_it_is_the_cpu() -> None:
    assert str(choose_device("auto")) == "cpu (no GPU is visible)"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible")
def test_cuda_without_a_gpu_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"^DEVICE=cuda: ") as caught:
        choose_device("cuda")
    assert "DEVICE=auto" in caught.value.hint


@pytest.mark.gpu
def test_gpu_reports_its_memory_in_gb() -> None:
    device = choose_device("cuda")
    block = torch.empty(250_000_000, dtype=torch.float32, device=device.torch)
    allocated = device.memory()["gpu_mem_allocated"]
    assert allocated is not None
    assert allocated == pytest.approx(block.numel() * 4 / 1e9, rel=0.01)


def test_memory_is_one_walk_of_the_allocators_table() -> None:
    walks = list[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name.startswith("memory_"):
            walks.append(frame.f_code.co_name)

    device = Device(torch.device("cuda", 0), "only named")
    sys.setprofile(note)
    try:
        device.memory()
    finally:
        sys.setprofile(None)
    assert walks == ["memory_stats_as_nested_dict"]


# A machine with a GPU, as far as torch is asked whether there is one; this torch cannot begin to use it, and
# a torch that can must not.
WITH_A_GPU = """
import runpy, sys
import torch
torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
_, *sys.argv = sys.argv
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    assert not torch.cuda.is_initialized()
"""


def test_training_on_the_cpu_starts_no_cuda(root: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    script = str(root / "lenet5" / "train.py")
    flags = ("--device", "cpu", "--num-threads", "1", "--max-steps", "2", "--tracker", "none")
    command = ["-c", WITH_A_GPU, script, "--run-dir", str(tmp_path / "run"), *flags]
    done = warm_torch.run(command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    start, *_, end = [record for record, _ in read_records(tmp_path / "run" / "metrics.jsonl")]
    hardware = start["hardware"]
    assert isinstance(hardware, dict)
    assert (hardware["gpus"], end["status"]) == ([], "complete")
    state = load(checkpoint_files(tmp_path / "run" / "checkpoints")[0])
    assert state["rng"]["cuda"] == []


def test_only_the_choice_of_a_device_asks_for_a_gpu(root: Path) -> None:
    """`is_available` opens the driver; whoever needs to know later asks what has been begun."""
    sources = [*root.glob("lib/**/*.py"), *root.glob("lenet5/*.py"), *root.glob("scripts/*.py")]
    asking = {
        path.relative_to(root).as_posix() for path in sources if "cuda.is_available" in path.read_text()
    }
    there = "lib/kharness/training/first_run/devices.py"  # whether there is one is what it is to find out
    assert asking == {"lib/kharness/training/device.py", there}


def test_threads_are_set_or_left_alone() -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(1) == 1
        assert set_threads(0) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("flags", "compiled"),
    [
        (["--compile-mode", "reduce-overhead"], {"backend": "inductor", "mode": "reduce-overhead"}),
        (["--compile-mode", "max-autotune"], {"backend": "inductor", "mode": "max-autotune"}),
        ([], {"backend": "inductor", "mode": "default"}),
        (["--compile-backend", "aot_eager"], {"backend": "aot_eager"}),
    ],
)
def test_a_model_is_compiled_as_the_options_say(
    root: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], compiled: dict[str, str]
) -> None:
    """Arguments of torch.compile follow the options; nothing is compiled before the first call."""
    options, _ = parse(["--compile", *flags], root=root, model="gpt2", prog="train.py", description=None)
    given: list[dict[str, str]] = []
    model = torch.nn.Linear(2, 2)
    monkeypatch.setattr(model, "compile", lambda **named: given.append(named))
    compile_model(model, options)
    assert given == [compiled]


def test_tf32_of_matrix_products_is_as_requested_and_read_back() -> None:
    device = torch.device("cuda", 0)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for is_on in (True, False):
            set_tf32(device, is_on)
            assert Numerics.of(torch.device("cpu")).tf32_matmul is is_on
            assert torch.get_float32_matmul_precision() == ("high" if is_on else "highest")
            set_tf32(torch.device("cpu"), not is_on)  # of a CPU nothing is set
            assert Numerics.of(torch.device("cpu")).tf32_matmul is is_on
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_tf32_is_refused_where_no_gpu_computes(root: Path) -> None:
    flags = ["--matmul-tf32", "--device", "cpu"]
    with pytest.raises(KharnessError, match="MATMUL_TF32=y has no effect"):
        parse(flags, root=root, model="gpt2", prog="train.py", description=None)
    options, _ = parse(flags[:1], root=root, model="lenet5", prog="train.py", description=None)
    assert options.values["MATMUL_TF32"] is True
