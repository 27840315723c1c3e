"""Steps that must not wait for the GPU: torch raises where one does."""

from __future__ import annotations

import torch


class WaitCheck:
    """With CUDA_SYNC_CHECK: between `begin` and `end` whatever waits for a CUDA GPU raises RuntimeError.

    By torch.cuda.set_sync_debug_mode, which knows the operations of torch that wait. A step is checked up to
    its record; evaluations and checkpoints, which follow it, wait and may.
    """

    def __init__(self, device: torch.device, *, is_on: bool) -> None:
        self._is_on = is_on and device.type == "cuda"

    def begin(self) -> None:
        if self._is_on:
            torch.cuda.set_sync_debug_mode("error")

    def end(self) -> None:
        if self._is_on:
            torch.cuda.set_sync_debug_mode("default")
