"""DETERMINISTIC: set before CUDA starts, read back, recorded; on a CPU it changes no bit."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kharness.training.determinism import WORKSPACE, Numerics, driver_version, make_deterministic
from kharness.training.errors import DeviceError
from monitoring import Record, read_records
from monitoring.journal.fields import is_result

from ...warm_python import WarmPython

DEFAULTS = {
    "deterministic_algorithms": False,
    "cudnn_deterministic": False,
    "cudnn_benchmark": False,
    "cublas_workspace": None,
    "tf32_matmul": False,
    "tf32_convolution": True,
    "gpu": None,
    "compute_capability": None,
    "cuda": None,
    "cudnn": None,
    "driver": None,
}
DETERMINISTIC = {
    "deterministic_algorithms": True,
    "cudnn_deterministic": True,
    "cublas_workspace": ":4096:8",
}
# Prints what torch reports then, and how an operation ends that has no deterministic form.
IN_A_PROCESS = """
import dataclasses, json, os, torch
from kharness.config.errors import exit_code
from kharness.training.determinism import Numerics, make_deterministic
from kharness.training.guard import named_causes

@named_causes()
def put(argv):
    torch.zeros(4).put_(torch.tensor([1]), torch.ones(1))

os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
make_deterministic()
numerics = Numerics.of(torch.device("cpu"))
numerics.check()
print(json.dumps(dataclasses.asdict(numerics)))
print(exit_code(put))
"""


def test_torch_reports_what_was_asked_and_refuses_what_it_cannot_do(warm_torch: WarmPython) -> None:
    done = warm_torch.run(["-c", IN_A_PROCESS])
    numerics, code = done.stdout.splitlines()
    assert code == "2"
    assert json.loads(numerics) == {**DEFAULTS, **DETERMINISTIC}
    assert done.stderr.splitlines() == [
        "error: put_ does not have a deterministic implementation",
        "hint: use an operation that has one in the model, or set DETERMINISTIC=n",
    ]


def test_a_training_on_the_cpu_has_the_same_bits_with_y_and_n(
    root: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    found, numerics = list[list[Record]](), list[object]()
    for flag in ("--deterministic", "--no-deterministic"):
        run = tmp_path / flag
        given = ("--device", "cpu", "--num-threads", "1", "--tracker", "none", "--optimizer", "adamw")
        short = ("--batch-size", "900", "--num-epochs", "1", "--lenet5-shift", "2", "--run-dir", str(run))
        done = warm_torch.run([str(root / "lenet5/train.py"), *given, *short, flag], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        start, *records = [record for record, _ in read_records(run / "metrics.jsonl")]
        numerics.append(start["numerics"])
        found.append([{name: record[name] for name in record if is_result(name)} for record in records])
    assert numerics == [{**DEFAULTS, **DETERMINISTIC}, DEFAULTS]
    assert [record["event"] for record in found[0]].count("step") == 6
    assert found[0] == found[1]


@pytest.fixture
def tf32() -> Iterator[None]:
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("tf32")
def test_tf32_is_read_as_torch_has_it() -> None:
    assert dataclasses.asdict(Numerics.of(torch.device("cpu"))) == DEFAULTS
    torch.backends.cuda.matmul.allow_tf32 = True
    assert dataclasses.asdict(Numerics.of(torch.device("cpu"))) == {**DEFAULTS, "tf32_matmul": True}


def test_a_workspace_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(DeviceError) as caught:
        make_deterministic()
    assert str(caught.value) == f"DETERMINISTIC=y does not go with {WORKSPACE}=:0:0 in the environment"
    assert caught.value.hint == f"unset {WORKSPACE}, or set it to :4096:8 or :16:8"


def test_cuda_that_was_started_before_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's train.py may have used it on import."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(DeviceError) as caught:
        make_deterministic()
    assert caught.value.hint == f"export {WORKSPACE}=:4096:8 before the training starts"
    assert WORKSPACE not in os.environ


def test_a_model_that_changes_the_settings_is_refused() -> None:
    numerics = Numerics(**{**DEFAULTS, **DETERMINISTIC, "cudnn_benchmark": True, "cublas_workspace": ""})  # type: ignore[arg-type]
    with pytest.raises(DeviceError) as caught:
        numerics.check()
    assert str(caught.value) == (
        "DETERMINISTIC=y: cudnn.benchmark is on, CUBLAS_WORKSPACE_CONFIG is  after the model was made"
    )


def test_what_differs_from_a_checkpoint_is_named() -> None:
    here = Numerics(**{**DEFAULTS, "cudnn": 91300, "driver": "580.1"})  # type: ignore[arg-type]
    before = {**dataclasses.asdict(here), "cudnn": 91002, "tf32_matmul": True}
    assert here.differences(before) == ["tf32_matmul True, now False", "cudnn 91002, now 91300"]
    assert here.differences({}) == []


def test_the_driver_is_what_its_kernel_module_says(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("570.86.15\n")
    assert driver_version(tmp_path / "version") == "570.86.15"
    assert driver_version(tmp_path / "none") is None


def test_these_settings_of_torch_have_one_owner(root: Path) -> None:
    words = ("backends.cudnn", "backends.cuda", "use_deterministic_algorithms(", "environ[WORKSPACE]")
    sources = [path for folder in ("lib", "lenet5", "scripts") for path in root.glob(f"{folder}/**/*.py")]
    setting = {path.name for path in sources if any(word in path.read_text() for word in words)}
    assert setting == {"determinism.py"}


@pytest.mark.gpu
def test_a_gpu_is_described_by_torch_and_its_driver() -> None:
    numerics = Numerics.of(torch.device("cuda", 0))
    major, minor = torch.cuda.get_device_capability(0)
    assert numerics.gpu == torch.cuda.get_device_name(0)
    assert numerics.compute_capability == f"{major}.{minor}"
    assert numerics.cuda in (torch.version.cuda, torch.version.hip)
    assert numerics.cudnn == torch.backends.cudnn.version()
