"""Failures of the machine are told apart: by exit code, in the end record, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kharness.training.checkpoint import checkpoint_files, load
from monitoring import read_records

from ..few_digits import environment_of
from ..warm_python import WarmPython

# Runs a program with only so much more address space than importing torch has taken.
LITTLE_MEMORY = """
import resource, runpy, sys
from pathlib import Path
import torch, torch._dynamo
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
_, megabytes, *sys.argv = sys.argv
resource.setrlimit(resource.RLIMIT_AS, (used + int(megabytes) * 2**20,) * 2)
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Runs a program with a small file system of its own at DIRECTORY, and keeps what it wrote in SAVED.
LITTLE_DISK = """
import ctypes, os, runpy, shutil, sys
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000

def succeed(code):
    if code:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        os._exit(125)

_, directory, saved, *sys.argv = sys.argv
user, group = os.getuid(), os.getgid()
succeed(libc.unshare(NEW_USER | NEW_MOUNTS))
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    Path(f"/proc/self/{name}").write_text(text)
succeed(libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, b"size=1300k"))
sys.path[0] = str(Path(sys.argv[0]).parent)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    shutil.copytree(directory, saved, dirs_exist_ok=True)
"""


def records(run: Path) -> list[dict[str, Any]]:
    return [record for record, _ in read_records(run / "metrics.jsonl")]


def test_out_of_memory_is_told(
    train_command: Callable[..., list[str]], tmp_path: Path, warm_torch: WarmPython
) -> None:
    flags = ("--batch-size", "5400", "--max-steps", "3", "--tracker-run-name", "run")
    _, *training = train_command(tmp_path, *flags)
    done = warm_torch.run(["-c", LITTLE_MEMORY, "200", *training])
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: out of memory: can't allocate memory: you tried to allocate ")
    assert hint == "hint: leave the training more memory and start it again, or lower BATCH_SIZE"
    assert done.returncode == 71
    end = records(tmp_path / "run")[-1]
    assert (end["event"], end["status"], end["cause"]) == ("end", "failed", "out_of_memory")


def test_full_disk_is_told_and_the_training_goes_on_where_there_is_room(
    train_command: Callable[..., list[str]], few_digits: Path, tmp_path: Path, warm_torch: WarmPython
) -> None:
    small, saved = tmp_path / "small", tmp_path / "saved"
    small.mkdir()
    saved.mkdir()
    flags = (
        "--dataset",
        "few-digits",
        "--batch-size",
        "18",
        "--num-epochs",
        "4",
        "--tracker-run-name",
        "run",
    )
    _, *training = train_command(small, *flags, checkout=few_digits)
    environment = environment_of(few_digits)
    done = warm_torch.run(["-c", LITTLE_DISK, small, saved, *training], env=environment)
    if done.returncode == 125:
        pytest.skip(f"this system does not let a user mount a small disk: {done.stderr.strip()}")
    run = saved / "run"
    what = f"{small}/run/checkpoints: the checkpoint of step 18 cannot be written: no space left on device"
    assert done.stderr == f"error: {what}\nhint: free some space; the checkpoints before it are intact\n"
    assert done.returncode == 74
    end = records(run)[-1]
    assert (end["event"], end["status"], end["cause"]) == ("end", "failed", "disk_full")
    assert [load(path)["global_step"] for path in checkpoint_files(run / "checkpoints")] == [12, 6]

    warm_torch.run([training[0], "--run-dir", run], env=environment).check_returncode()
    assert records(run)[-1]["status"] == "complete"
    (start,) = (r for r in records(run) if r["event"] == "start" and r["attempt"] == 2)
    assert start["resumed_from"]["global_step"] == 12


# In a run, as a training is: named_causes within, so that the end record has the cause.
ON_A_GPU = """
import sys
from pathlib import Path
import torch
from kharness.config.errors import run_command
from kharness.training.guard import named_causes
from monitoring import Run

def main(argv):
    with Run(Path(argv[0]), name="n", project="p", config={}, agent=False) as run, named_causes():
        values = torch.zeros(4, device="cuda")
        run.log_step(1, train_loss=values.sum())
        ACTION
        torch.cuda.synchronize()

run_command(main)
"""


@pytest.mark.gpu
def test_out_of_a_gpus_memory_is_told(tmp_path: Path, warm_torch: WarmPython) -> None:
    action = "torch.empty(10**13, device='cuda')"
    done = warm_torch.run(["-c", ON_A_GPU.replace("ACTION", action), str(tmp_path / "run")])
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: out of memory: CUDA out of memory. Tried to allocate ")
    assert hint == "hint: leave the training more memory and start it again, or lower BATCH_SIZE"
    assert done.returncode == 71
    step, end = records(tmp_path / "run")
    assert (step["train_loss"], end["status"], end["cause"]) == (0.0, "failed", "out_of_memory")


@pytest.mark.gpu
def test_a_failed_assertion_on_a_gpu_is_the_devices(tmp_path: Path, warm_torch: WarmPython) -> None:
    """After it nothing of the GPU can be read; a record whose loss was on its way is written even so."""
    action = "values[torch.tensor([9], device='cuda')]"
    done = warm_torch.run(["-c", ON_A_GPU.replace("ACTION", action), str(tmp_path / "run")])
    assert "device-side assert triggered" in done.stderr
    assert done.returncode == 1
    step, end = records(tmp_path / "run")
    assert (step["global_step"], end["status"], end["cause"]) == (1, "failed", "device")
