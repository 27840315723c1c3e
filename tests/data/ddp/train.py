"""A training in float64 whose ranks can be made to fail, through the loop of the reference trainings.

    RANK=0 WORLD_SIZE=2 … python tests/data/ddp/train.py FLAGS…      FAULT=nan:3:5 DTYPE=float32 MODEL=gpt2

FAULT is what, on which rank and at which step: `nan` in a sample, `refuse` one, `kill` or `stop` by a signal,
`hang`, `spike` of the loss, after which the rank waits until the agent has warned of it; in the next
checkpoint that ranks share, `kill-in-part` or `kill-in-name` while it is written, `full` where no file may
grow; `kill-in-save` in the next checkpoint, `kill-answered` after the next answer to a request. NET=layers
has layers in a list. CONTROL='{"5": {"lr_factor": 0.5}}' has rank 0 write a request in the 5th step, which
the 6th follows; QUEUED='{"5": [{"lr_factor": 0.5}, …]}' some as `make control` does.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from kharness.config.errors import run_command
from kharness.config.options import Options
from kharness.training.checkpoint import Checkpoints
from kharness.training.errors import DatasetError
from kharness.training.opening import open_training
from kharness.training.saving import shards
from monitoring import control

ROOT = Path(__file__).resolve().parents[3]
DTYPE: torch.dtype = getattr(torch, os.environ.get("DTYPE", "float64"))


@dataclass(frozen=True)
class Points:
    """Thirty inputs and a function of each."""

    inputs: Tensor = field(
        default_factory=lambda: torch.arange(240, dtype=DTYPE).reshape(30, 8).remainder(7) / 8
    )
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 30})
    sha256: str = "d" * 64

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs[indices]
        return inputs, inputs.sin().sum(1, keepdim=True)


def main(argv: Sequence[str]) -> int:
    control.POLL_SECONDS = control.DEBOUNCE_SECONDS = 0
    model = os.environ.get("MODEL", "lenet5")  # whose options there are: gpt2's has micro-batches
    with open_training(argv, root=ROOT, model=model, about="", prepare=prepare) as training:
        for indices in training.steps():
            request(training.step + 1, Path(argv[argv.index("--run-dir") + 1]))
            wait_for_alert(training.step + 1, Path(argv[argv.index("--run-dir") + 1]))
            scale = fault(training.step + 1)
            for part, share in training.micro_batches(indices) if model == "gpt2" else [(indices, 1.0)]:
                inputs, wanted = training.batch(training.data, part)
                training.accumulate(scale * F.mse_loss(training.model(inputs), wanted), share=share)
            training.update()
            if training.evaluation_is_due:
                inputs, wanted = training.data.batch(torch.arange(30))
                with torch.inference_mode():
                    training.evaluated("val", loss=F.mse_loss(training.model(inputs), wanted).item())
        return training.finish()


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, Points]:
    if "LOGS" in os.environ:
        log_at_each_level()
    dropout = nn.Dropout(float(os.environ.get("DROPOUT", "0")))
    if os.environ.get("NET") == "layers":
        return Residual(dropout).to(DTYPE), Points()
    return nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), dropout), nn.Linear(16, 1)).to(
        DTYPE
    ), Points()


class Residual(nn.Module):
    """Two layers between a first and a last one, of whose one row only rank 0 has a part; and a buffer."""

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), dropout) for _ in range(2))
        self.register_buffer("shift", torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) + self.shift
        for layer in self.layers:
            x = x + layer(x)
        found: Tensor = self.last(x)
        return found


def log_at_each_level() -> None:
    for name in ("some_package.part", "torch.nn"):
        for level in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), level)(level)
    warnings.warn("by warnings", stacklevel=1)
    print("verbosity:", os.environ.get("TRANSFORMERS_VERBOSITY"), file=sys.stderr)


def request(step: int, run: Path) -> None:
    requests = json.loads(os.environ.get("CONTROL", "{}"))
    if os.environ.get("RANK", "0") == "0" and str(step) in requests:
        content = {"timestamp": 1e9 + step, "source": "a test", **requests[str(step)]}
        (run / "control.json").write_text(json.dumps(content))
    queued = json.loads(os.environ.get("QUEUED", "{}"))
    if os.environ.get("RANK", "0") == "0" and str(step) in queued:
        for changes in queued[str(step)]:
            control.send(run, changes, source="a test")


def fault(step: int) -> float:
    what, rank, at = os.environ.get("FAULT", "none:0:0").split(":")
    if what == "hang" and step == int(at):
        wait_shortly()
    if os.environ.get("RANK", "0") != rank or step != int(at):
        return 1.0
    if what == "refuse":
        raise DatasetError("the sample cannot be decoded", hint="look at it")
    if what in SAVING:
        SAVING[what]()
    if what in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGTERM)
    while what == "hang":
        time.sleep(60)
    return {"nan": float("nan"), "spike": 1000.0}.get(what, 1.0)


def wait_for_alert(step: int, run: Path) -> None:
    what, rank, at = os.environ.get("FAULT", "none:0:0").split(":")
    if (what, rank, int(at)) == ("spike", os.environ.get("RANK", "0"), step - 1):
        guard = time.monotonic() + 600
        while b'"rule":"loss_spike"' not in (run / "alerts.jsonl").read_bytes():
            assert time.monotonic() < guard, "no alert after ten minutes"
            time.sleep(0.05)


def killed(*_: object, **__: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


def kill_in_part() -> None:
    """While this rank writes its tensors."""
    FileSystemWriter.write_data = killed  # type: ignore[method-assign]


def kill_in_name() -> None:
    """When all is written but the hashes, and the name that makes it visible."""
    vars(shards)["sync_folder"] = killed


def fill_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def kill_in_save() -> None:
    Checkpoints.save = killed  # type: ignore[method-assign]


def kill_answered() -> None:
    """Between the answer to a request and the removal of its file."""
    control.ControlFile.answered = killed  # type: ignore[method-assign]


SAVING = {
    "kill-answered": kill_answered,
    "kill-in-save": kill_in_save,
    "kill-in-part": kill_in_part,
    "kill-in-name": kill_in_name,
    "full": fill_disk,
}


def wait_shortly() -> None:
    """Shorten the timeout of collectives to a second; until here it must be the one of RANK_TIMEOUT."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.options._timeout == timedelta(minutes=float(os.environ["TIMEOUT"]))
    backend._set_default_timeout(timedelta(seconds=1))


if __name__ == "__main__":
    run_command(main)
