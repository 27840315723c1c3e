"""AdamWPrune: AdamW whose own moments choose what is pruned.

The update is torch.optim.AdamW's. What makes it AdamWPrune is PRUNING=state, the default with this optimizer
(kharness.training.pruning.state); with PRUNING=none it is AdamW.
"""

from __future__ import annotations

import torch
from torch import nn

from kharness.training.optimizers import adamw

CITED = ("loshchilov2019",)

Options = adamw.Options


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW, its fused kernel."""
    return adamw.build(model, options)
