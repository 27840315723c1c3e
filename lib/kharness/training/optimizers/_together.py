"""Several optimizers that take their steps together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim.optimizer import StateDict


class Together(torch.optim.Optimizer):
    """Several optimizers of different parameters, with the interface of one."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = parts
        """In the order of their groups."""
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a training has none
        """One step of each part."""
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load like torch, and share the groups and state again, since torch replaces them."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            # One state, so that the state_dict of the whole has what each part writes.
            part.state = self.state
