"""A training whose step is an example of docs/change-the-training.md.

EXAMPLE=record python tests/data/changed/train.py FLAGS…       STOP=5 stops it after the 5th step
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.errors import RENDEZVOUS_FILE, run_command
from kharness.config.options import Options
from kharness.training.opening import OwnOptimizers, open_training

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/change-the-training.md").read_text()
EXAMPLES = dict(re.findall(r"^```python\n# (\w+)\n(.*?)^```", PAGE, flags=re.M | re.S))


class Net(nn.Module):
    """Classes of an input (n, 8), and the input again from what is left of it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(8, 6)
        self.head = nn.Linear(6, 3)
        self.decoder = nn.Linear(6, 8)
        self.critic = nn.Linear(6, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.trunk(inputs))
        return self.head(features), self.decoder(features)


@dataclass(frozen=True)
class Split:
    inputs: Tensor = field(
        default_factory=lambda: torch.arange(240, dtype=torch.float64).reshape(30, 8).remainder(7) / 8
    )

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], indices % 3


@dataclass(frozen=True)
class Data:
    train: Split = field(default_factory=Split)
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 30})
    sha256: str = "d" * 64


def main(argv: Sequence[str]) -> int:
    folder, *flags = argv
    meeting = os.environ.get(RENDEZVOUS_FILE)
    for name in EXAMPLES:
        if meeting:
            os.environ[RENDEZVOUS_FILE] = meeting + name
        run = Path(folder) / name
        with suppress(SystemExit):  # of one that is stopped
            train(name, ["--run-dir", str(run), *([] if (run / ".config").exists() else flags)])
    return 0


def train(name: str, argv: Sequence[str]) -> int:
    example: dict[str, Any] = {"torch": torch, "F": F, "OwnOptimizers": OwnOptimizers}
    exec(compile(EXAMPLES[name], str(ROOT / "docs/change-the-training.md"), "exec"), example)
    optimizers = example.get("optimizers")
    with open_training(
        argv, root=ROOT, model="gpt2", about="", prepare=prepare, optimizers=optimizers
    ) as training:
        for indices in training.steps():
            example["step"](training, indices)
            if training.step == int(os.environ.get("STOP", "0")):
                signal.raise_signal(signal.SIGTERM)
            if training.evaluation_is_due:
                training.evaluated("val", loss=0.5)
        return training.finish()


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, Data]:
    return Net().double(), Data()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    run_command(main)
