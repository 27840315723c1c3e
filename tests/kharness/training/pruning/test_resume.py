"""Masks and schedule position survive a checkpoint: a resumed pruning goes on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kharness.training.checkpoint import Checkpoints, Stateful, load, restore, training_state
from kharness.training.data import Batches
from kharness.training.errors import CheckpointError
from kharness.training.pruning import build_pruner
from kharness.training.schedules import Schedule, set_learning_rate
from kharness.training.seeds import Generators, seed_everything

STEPS = 12


class Session:
    """A training that prunes, small enough to compare bit for bit."""

    def __init__(self, method: str, *, width: int = 8) -> None:
        seed_everything(5)
        self.model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.schedule = Schedule("onecycle", 0.05, STEPS, 0.3)
        symbols: dict[str, Any] = {
            "OPTIMIZER": "adamw",
            "PRUNING_SPARSITY": 0.8,
            "PRUNING_START_FRACTION": 0.2,
            "PRUNING_END_FRACTION": 0.8,
            "PRUNING_EVERY": 3,
            "PRUNING_GLOBAL": True,
            "PRUNING_STATE_VARIANT": "bitter0",
        }
        if method == "semi-structured":
            del symbols["PRUNING_SPARSITY"]
        self.pruner = build_pruner(method, self.model, self.optimizer, symbols, num_steps=STEPS)
        self.batches = Batches(20, 6, seed=5, device=torch.device("cpu"))
        self.data = torch.randn(20, 4)
        self.step = 0
        self.history: list[tuple[float, Any]] = []

    def advance(self, until: int) -> None:
        while self.step < until:
            for indices in self.batches.rest_of_epoch():
                set_learning_rate(self.optimizer, self.schedule(self.step))
                loss = self.model(self.data[indices]).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                self.pruner.after_step(self.step)
                self.history.append((loss.item(), self.pruner.measured().get("sparsity")))
                if self.step == until:
                    break

    def save(self, directory: Path) -> Path:
        state = training_state(self.parts(), global_step=self.step, attempt=1)
        return Checkpoints(directory, attempt=1).save(self.step, state)

    def restore(self, path: Path) -> None:
        state = load(path)
        restore(state, self.parts())
        self.step = state["global_step"]

    def parts(self) -> dict[str, Stateful]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "pruning": self.pruner,
            "data": self.batches,
            "rng": Generators(),
        }


# Before the first pruning, between two, at one, after the last.
@pytest.mark.parametrize("saved_after", [1, 4, 5, 11])
@pytest.mark.parametrize(
    "method", ["magnitude", "movement", "movement-sanh", "random", "semi-structured", "state", "taylor"]
)
def test_resumed_pruning_goes_on_bit_for_bit(tmp_path: Path, method: str, saved_after: int) -> None:
    whole = Session(method)
    whole.advance(STEPS)
    begun = Session(method)
    begun.advance(saved_after)
    path = begun.save(tmp_path)
    resumed = Session(method)
    resumed.restore(path)
    resumed.advance(STEPS)
    assert begun.history + resumed.history == whole.history
    assert whole.history[-1][1] == (0.5 if method == "semi-structured" else 45 / 56)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    states = [session.pruner.state_dict() for session in (whole, resumed)]
    assert states[0]["last_pruning"] == states[1]["last_pruning"] == 10
    for name, mask in states[0]["pruned"].items():
        assert torch.equal(mask, states[1]["pruned"][name])


@pytest.mark.parametrize(
    ("saved", "resumed", "message"),
    [
        ("magnitude", "random", "it was made with PRUNING=magnitude, not with PRUNING=random"),
        ("magnitude", "none", "it was made with PRUNING=magnitude, not with PRUNING=none"),
        ("none", "taylor", "it was made with PRUNING=none, not with PRUNING=taylor"),
    ],
)
def test_a_checkpoint_of_another_method_is_refused(
    tmp_path: Path, saved: str, resumed: str, message: str
) -> None:
    begun = Session(saved)
    begun.advance(6)
    with pytest.raises(CheckpointError, match=message):
        Session(resumed).restore(begun.save(tmp_path))
