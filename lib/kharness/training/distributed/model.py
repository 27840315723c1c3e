"""A model whose gradients are the mean over all ranks: torch's DistributedDataParallel."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kharness.training.distributed.world import World
from monitoring.telemetry.phases import Phases, watch_ddp


def distributed_model(model: nn.Module, world: World, device: torch.device, phases: Phases) -> nn.Module:
    """The model that a step calls: itself in one process; waiting for other ranks counts in no phase.

    Averaged while backward runs (Li et al. 2020, arXiv:2006.15704). Buffers, as those of batch norm, are
    those of rank 0 from the next forward pass on.
    """
    if world.size == 1:
        return model
    distributed = DistributedDataParallel(
        model, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True
    )
    watch_ddp(distributed, phases)
    return distributed


def unsynchronized(model: nn.Module) -> AbstractContextManager[None]:
    """Within it, backward keeps gradients to this rank: those of micro-batches but the last."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()
