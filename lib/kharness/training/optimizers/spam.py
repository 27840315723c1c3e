"""SPAM: Huang et al. 2025 (Spike-Aware Adam with Momentum Reset, arXiv 2501.06842), algorithm 1.

Every `reset_every` steps both moments are forgotten and the rate rises along half a cosine; an element with
g^2 > threshold v is clipped to sign(g) sqrt(threshold v), but for the first steps after a reset.

When is from the authors' program (github.com/TianjinYellow/SPAM-Optimizer at e8185fb, galore_torch/SPAM.py):
moments are zeroed in step `reset_every` and its multiples, from 1. The start of the training is a reset
for clipping (`current_step >= grad_accu_steps`) and none for the rate (`current_step` begins at
`warmup_steps + 1`). Not taken are its eps, added before the bias correction, and its decay, which the warm-up
does not scale; and the sparse momentum of the paper's memory-saving variant.

Taken: torch.optim.AdamW (bias correction over all steps, as in the paper); the rest stands here, because SPAM
of pytorch_optimizer flattens the moments of matrices, which no pruning can then read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from kharness.training.optimizers import adamw
from kharness.training.optimizers._before_step import before_each_step, moments, scale_moments

CITED = ("huang2025",)


@dataclass(frozen=True)
class Options(adamw.Options):
    """Hyperparameters of AdamW, and those of SPAM."""

    threshold: float
    """Squared gradient over second moment above which an element is clipped."""
    clip_after: int
    """Steps after a reset, and at the start, that clip nothing."""
    reset_every: int
    """Steps after which both moments are forgotten."""
    warmup_steps: int
    """Steps after a reset until the rate is back."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's AdamW, its fused kernel, which gets clipped gradients."""
    optimizer = adamw.build(model, options)
    before_each_step(optimizer, lambda step: _prepare(optimizer, options, step))
    return optimizer


def _prepare(optimizer: torch.optim.AdamW, options: Options, step: int) -> float:
    """Forget or clip; returns the scale of the step's rate."""
    since = step % options.reset_every
    if since == 0:
        scale_moments(optimizer, 0.0, 0.0)
    if since >= options.clip_after:
        for gradient, _, square in moments(optimizer):
            limit = (options.threshold * square).sqrt_()
            gradient.clamp_(-limit, limit)
    return _rate_after(since, options.warmup_steps) if step >= options.reset_every else 1.0


def _rate_after(since: int, warmup_steps: int) -> float:
    """Share of the rate: 1 % in the step of a reset, all after `warmup_steps`, by the authors' cosine."""
    if since >= warmup_steps:
        return 1.0
    return 1 - 0.99 * (1 + math.cos(math.pi * since / (warmup_steps + 1))) / 2
