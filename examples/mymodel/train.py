"""Train my model: which of two spirals is a point on?

make M=FOLDER                               # in kharness; results are in FOLDER/results
python train.py --optimizer adamw           # here, with kharness's Python
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kharness.config.errors import run_command
from kharness.config.options import Options, begin_script

MODEL = "mymodel"
ROOT = begin_script(__file__, __name__, about=__doc__, model=MODEL)  # checks flags before torch is imported

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.training.opening import Training, open_training


@dataclass(frozen=True)
class Points:
    """Points in the plane (n, 2), and the spiral of each (n)."""

    where: Tensor
    spiral: Tensor

    @classmethod
    def drawn(cls, count: int, seed: int, device: torch.device) -> Points:
        """The same points for the same seed, on every device."""
        generator = torch.Generator().manual_seed(seed)
        spiral = torch.randint(2, (count,), generator=generator)
        turn = torch.rand(count, generator=generator) * 2
        angle = (turn + spiral) * math.pi
        where = turn[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
        return cls((where + 0.03 * torch.randn(count, 2, generator=generator)).to(device), spiral.to(device))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The points of a step."""
        return self.where[indices], self.spiral[indices]


@dataclass(frozen=True)
class Data:
    """Points by split; the loop needs `sizes` and `sha256`, the rest is the model's own."""

    train: Points
    validation: Points
    test: Points

    @property
    def sizes(self) -> Mapping[str, int]:
        return {name: len(points.spiral) for name, points in vars(self).items()}

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.train.where.cpu().numpy().tobytes()).hexdigest()


def main(argv: Sequence[str]) -> int:
    """Train what the configuration says; the loop records, saves and stops.

    The same lines run for --dry-run and a trial of automatic settings (a few measured steps, then the first
    batch of an evaluation), and for `make inspect-batch` (one step sample by sample, without an update).
    """
    with open_training(argv, root=ROOT, model=MODEL, about=__doc__, prepare=prepare) as training:
        for indices in training.steps():
            where, spiral = training.batch(training.data.train, indices)
            training.update(F.cross_entropy(training.model(where), spiral))
            if training.evaluation_is_due:
                training.evaluated("val", **evaluate(training, training.data.validation))
        return training.finish(**evaluate(training, training.data.test))


def prepare(options: Options, device: torch.device) -> tuple[nn.Module, Data]:
    """The model with its first weights, and its data, on the device."""
    width = options.MYMODEL_WIDTH
    layers = nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
    data = [Points.drawn(count, seed, device) for count, seed in ((4096, 1), (512, 2), (512, 3))]
    return nn.Sequential(*layers).to(device), Data(*data)


@torch.inference_mode()
def evaluate(training: Training[Data], points: Points) -> dict[str, float]:
    """Mean cross-entropy (nats) and accuracy (0 to 1) on the points of a split."""
    model = training.models[""].eval()
    logits = model(points.where)
    model.train()
    right = (logits.argmax(1) == points.spiral).float().mean()
    return {"loss": F.cross_entropy(logits, points.spiral).item(), "accuracy": right.item()}


if __name__ == "__main__":
    run_command(main)
