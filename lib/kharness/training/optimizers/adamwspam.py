"""AdamWSPAM: AdamW with AMSGrad that holds back where the norm of the gradient jumps.

A step whose gradient norm is more than `threshold` standard deviations above the mean of the last 100 steps,
itself among them, halves the first moments and scales the second by 0.9 before the update. Optional: elements
with |g| > sqrt(theta v) are clipped to that before the norm is taken, and both moments are forgotten every so
many steps, after which the rate rises along half a cosine. The order is that of the predecessor
(mcgrof/AdamWPrune, lib/optimizers.py, apply_spam_gradient_processing).

Taken: torch.optim.AdamW; the rest stands here. Nothing in a step waits for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import get_total_norm

from kharness.training.optimizers import adamw
from kharness.training.optimizers._before_step import before_each_step, moments, scale_moments, warm_up
from kharness.training.saving.sharded import full

CITED = ("loshchilov2019", "reddi2018")

_HISTORY = 100


@dataclass(frozen=True)
class Options(adamw.Options):
    """Hyperparameters of AdamW, and those of AdamWSPAM."""

    threshold: float
    """Standard deviations of the gradient norm above its mean that make a spike."""
    clip: bool
    """Whether elements of the gradient are clipped."""
    theta: float
    """Squared gradient over second moment above which they are."""
    reset_every: int
    """Steps after which both moments are forgotten; 0 never."""
    warmup_steps: int
    """Steps after a reset until the rate is back."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW with AMSGrad, its fused kernel, which gets what spikes leave."""
    optimizer = adamw.build(model, options, amsgrad=True)
    first = optimizer.param_groups[0]["params"][0]
    optimizer.param_groups[0]["norms"] = torch.zeros(_HISTORY, dtype=first.dtype, device=first.device)
    before_each_step(optimizer, lambda step: _prepare(optimizer, options, step))
    return optimizer


def _prepare(optimizer: torch.optim.AdamW, options: Options, step: int) -> float:
    """Clip, then look for a spike in what is left, as the predecessor does; returns the scale of the rate."""
    if options.clip:
        for gradient, _, square in moments(optimizer):
            limit = (options.theta * square).sqrt_()
            # A second moment of zero is one that was just forgotten, or of a weight without gradients so far.
            gradient.copy_(torch.where(limit > 0, gradient.clamp(-limit, limit), gradient))
    _hold_back(optimizer, options.threshold, step)
    if not options.reset_every or step < options.reset_every:
        return 1.0
    since = step % options.reset_every
    if since == 0:
        scale_moments(optimizer, 0.0, 0.0)
    return warm_up(since, options.warmup_steps)


def _hold_back(optimizer: torch.optim.AdamW, threshold: float, step: int) -> None:
    """Halve the first moments and scale the second by 0.9 if this step's norm is a spike."""
    group = optimizer.param_groups[0]
    parameters = [parameter for one in optimizer.param_groups for parameter in one["params"]]
    norm = full(get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None]))
    norms = group["norms"] = group["norms"].to(norm.device)  # a checkpoint is loaded on the CPU
    norms[(step - 1) % _HISTORY] = norm
    # Until the ring is full only its filled part.
    seen = norms[:step]
    spike = norm - seen.mean() > threshold * seen.std(unbiased=False)
    spike = spike.to(norm.dtype)
    # Always, by 1 where there is none: to branch on the spike would wait for the GPU.
    scale_moments(optimizer, 1 - 0.5 * spike, 1 - 0.1 * spike)
