"""The device of a training, the reason for it, and what its memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from kharness.config.options import Options
from kharness.training.determinism import Numerics
from kharness.training.needs import no_gpu, too_few_gpus

_GB = 1e9

# Field of a step record -> the allocator's name of it.
_MEMORY = {"gpu_mem_allocated": "allocated_bytes", "gpu_mem_reserved": "reserved_bytes"}


@dataclass(frozen=True)
class Device:
    """A device and, for the user, why it was taken."""

    torch: torch.device
    reason: str

    @property
    def is_gpu(self) -> bool:
        """Whether reading a value from the device synchronizes with it."""
        return self.torch.type != "cpu"

    def memory(self) -> dict[str, float | None]:
        """`gpu_mem_allocated` and `gpu_mem_reserved` in GB (1e9 bytes), by torch's count; None on a CPU.

        Both from one walk of the allocator's table, which torch.cuda.memory_allocated and memory_reserved
        each walk, flatten and sort for their one number.
        """
        table = torch.cuda.memory_stats_as_nested_dict(self.torch) if self.is_gpu else {}
        return {
            field: table[quantity]["all"]["current"] / _GB if table else None
            for field, quantity in _MEMORY.items()
        }

    def __str__(self) -> str:
        return f"{self.torch} ({self.reason})"


def choose_device(name: str, local_rank: int = 0) -> Device:
    """The device for `auto`, `cpu` or `cuda`; DeviceError if it is not there: nothing falls back.

    Of several ranks on a host each takes the GPU of its number, or the only one that it sees.
    """
    if name == "cpu":
        return Device(torch.device("cpu"), "requested")
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        index = local_rank if count > 1 else 0
        if index >= count:
            raise no_gpu(f"{count} GPUs are visible, too few for local rank {local_rank}")
        found = torch.cuda.get_device_name(index)
        return Device(torch.device("cuda", index), f"{found}, {'requested' if name == 'cuda' else 'found'}")
    if name == "cuda":
        build = torch.version.cuda or torch.version.hip
        reason = "no GPU is visible" if build else f"torch {torch.__version__} is a build without GPU support"
        raise no_gpu(reason)
    return Device(torch.device("cpu"), "no GPU is visible")


def check_gpus(name: str, processes: int) -> None:
    """DeviceError for more processes than GPUs, unless they are to share the CPU."""
    found = torch.cuda.device_count() if name != "cpu" else processes
    if found < processes:
        raise too_few_gpus(processes, found)


def take_device(name: str, local_rank: int = 0) -> Device:
    """Choose the device like choose_device, and make a GPU the current one of the process.

    Libraries, timers and readings that name no device mean that one, which would otherwise be GPU 0 on every
    rank.
    """
    device = choose_device(name, local_rank)
    if device.torch.type == "cuda":
        torch.cuda.set_device(device.torch)
    return device


def uses_bf16(amp: str, device: torch.device) -> bool:
    """Whether matrix products are computed in bfloat16, by AMP: auto, bf16 or none.

    With auto on GPUs from Ampere on. The CPU's float32 is what results promise.
    """
    if amp == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return amp == "bf16"


def compile_model(model: nn.Module, options: Options) -> None:
    """Have the model compiled when it is first called, as COMPILE_BACKEND and COMPILE_MODE say."""
    of_inductor = {"mode": options.COMPILE_MODE} if options.COMPILE_BACKEND == "inductor" else {}
    model.compile(backend=options.COMPILE_BACKEND, **of_inductor)


def uses_gpu(name: str) -> bool:
    """Whether choose_device gives a GPU for `auto`, `cpu` or `cuda`, or fails; CUDA is not started."""
    return name != "cpu" and torch.cuda.is_available()


def set_threads(count: int, *, processes: int = 1) -> int:
    """Use `count` CPU threads for tensor operations; returns how many there are.

    0 is torch's choice, shared by the processes of the training on this host. That choice is set too: only
    then MKL keeps to it, and the same number gives the same bits.
    """
    torch.set_num_threads(count or max(1, torch.get_num_threads() // processes))
    return torch.get_num_threads()


class Compute:
    """The hardware and parallelism that the last bits of results depend on: device, threads, processes."""

    def __init__(self, device: torch.device, numerics: Numerics, *, processes: int = 1) -> None:
        self._device = device
        self._processes = processes
        self._numerics = numerics

    def state_dict(self) -> dict[str, Any]:
        of_gpu = {"numerics": asdict(self._numerics)} if self._device.type == "cuda" else {}
        of_ranks = {"processes": self._processes} if self._processes > 1 else {}
        return {
            "device": str(self._device),
            "cpu_threads": torch.get_num_threads(),
            **of_gpu,
            **of_ranks,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Use as many CPU threads as before, and print so; another device is only reported."""
        threads, here = state["cpu_threads"], torch.get_num_threads()
        if set_threads(threads) != here:
            print(f"resume: with {threads} CPU threads as before, not {here}, for the same bits")
        if (processes := state.get("processes", 1)) != self._processes:
            print(
                f"resume: begun in {processes} processes, now {self._processes}: "
                "the same batches, not bit-identical"
            )
        if state["device"] != str(self._device):
            before = state["device"]
            print(f"resume: begun on {before}, now on {self._device}: not bit-identical from here on")
        elif different := self._numerics.differences(state.get("numerics", {})):
            print(f"resume: {'; '.join(different)}: not bit-identical from here on")
