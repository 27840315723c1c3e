"""DDP and FSDP: a model whose gradients are averaged over the ranks, replicated or sharded."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kharness.training.distributed.world import World
from kharness.training.saving.sharded import is_sharded
from monitoring.telemetry.phases import Phases, watch_ddp

FSDP = "fsdp"
"""Value of PARALLEL with which ranks share weights, gradients and the optimizer's state."""


class ShardedModel(nn.Module):
    """A sharded model (`share_model`), to be called in training and evaluation."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        """All ranks come here equally often; after an evaluation weights are parts again.

        FSDP2 gathers weights into tensors that it keeps, which inference mode would spoil for training.
        """
        if torch.is_grad_enabled():
            return self.module(*inputs)
        with torch.inference_mode(False), torch.no_grad():
            found = self.module(*inputs)
            self.module.reshard()  # the outermost layer, which FSDP2 keeps for a backward pass
        return found


def share_model(model: nn.Module, world: World, device: torch.device, *, bf16: bool = False) -> None:
    """Leave this rank its part of each weight, on the device: torch's FSDP2 (fully_shard), in place.

    Layers in lists (nn.ModuleList) are gathered one after the other when they compute, and all else at once.
    Nothing is sent: all ranks have made the same model. With `bf16`, for a model that computes under
    torch.autocast, layers are gathered in bfloat16, half the traffic; their parts and the sums of gradients
    stay float32, and so does all between and outside of them.
    """
    from torch.distributed.device_mesh import init_device_mesh  # here: it takes seconds
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    precision = MixedPrecisionPolicy()
    if bf16:
        precision = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    # from the inside out: each call takes the weights that no call before has taken (torch's fully_shard)
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh)


def distributed_model(
    model: nn.Module,
    world: World,
    device: torch.device,
    phases: Phases,
    *,
    apart: Collection[nn.Parameter] = (),
    find_unused: bool = False,
) -> nn.Module:
    """The model that a step calls: itself in one process; waiting for other ranks counts in no phase.

    Gradients of parameters that train `apart` stay this rank's own. With `find_unused` a backward pass need
    not come to every parameter.

    Averaged while backward runs (Li et al. 2020, arXiv:2006.15704). Buffers, as those of batch norm, are
    those of rank 0 from the next forward pass on. Of a model that ranks share the waiting is part of the
    phases, which is why its records say nothing of collectives.
    """
    if world.size == 1:
        return model
    if any(map(is_sharded, model.parameters())):
        phases.waiting_stays()
        return ShardedModel(model)
    names = [name for name, parameter in model.named_parameters() if parameter in apart]
    # As torch has it for a model of which something else averages a part: FSDP inside of DDP.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    distributed = DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=find_unused,
    )
    watch_ddp(distributed, phases)
    return distributed


def unsynchronized(model: nn.Module) -> AbstractContextManager[None]:
    """Within it, backward keeps gradients to this rank: those of micro-batches but the last.

    Not of a model that ranks share: this rank would keep the gradients of all weights, for which it may have
    no room, to send two thirds as much (weights are gathered twice a micro-batch in any case).
    """
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()
