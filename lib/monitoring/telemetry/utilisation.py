"""Model FLOPs utilisation: the share of a device's peak that goes into the model's own operations.

As in Chowdhery et al. 2022 (PaLM, arXiv:2204.02311), appendix B. The hardware's utilisation also counts what
is computed twice, as by activation checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitoring.telemetry.device_peaks import device_peak
from monitoring.telemetry.device_pool import DeviceScalar

UNMEASURED: Mapping[str, None] = {"step_mfu": None, "overall_mfu": None}


@dataclass(frozen=True)
class Utilisation:
    """What a training needs, and what its devices can do."""

    flops_per_step: float
    """Of the model, forward and backward, on all devices together."""
    peak: float | None
    """FLOP/s of all devices together; None where it is not known."""
    hardware_flops_per_step: float | None = None
    """With what is computed twice; None where nothing is."""
    about: str = ""
    """Where the peak comes from, or why it is not known."""

    @classmethod
    def of(
        cls,
        flops_per_step: float,
        *,
        device: str,
        dtype: str,
        num_devices: int = 1,
        hardware_flops_per_step: float | None = None,
    ) -> Utilisation:
        """By the table of devices: `device` is a name as torch.cuda.get_device_name gives it."""
        found = device_peak(device)
        peak = found.flops.get(dtype) if found is not None else None
        if found is None:
            about = f"no peak FLOP/s known of {device}"
        elif peak is None:
            about = f"no peak FLOP/s known of {device} in {dtype}"
        else:
            about = f"{peak / 1e12:g} TFLOP/s of {device} in {dtype} ({found.source})"
        whole = None if peak is None else num_devices * peak
        return cls(flops_per_step, whole, hardware_flops_per_step, about)

    def measured(
        self,
        sec_per_step: float | DeviceScalar | None,
        *,
        seconds: float,
        steps: int,
        warn: Callable[[str], None],
    ) -> dict[str, float | DeviceScalar | None]:
        """`step_mfu` of a step, and `overall_mfu` of so many steps that took so many seconds, all included.

        With `step_hfu` where something is computed twice. None where the peak is not known, and for what a
        device cannot do: more than 1 is an error in the table of peaks, of which `warn` gets a sentence.
        """
        if self.peak is None:
            return dict(UNMEASURED)
        found: dict[str, float | DeviceScalar | None] = {
            "step_mfu": self._share(self.flops_per_step, sec_per_step, warn),
            "overall_mfu": self._share(self.flops_per_step * steps, seconds, warn),
        }
        if self.hardware_flops_per_step is not None:
            found["step_hfu"] = self._share(self.hardware_flops_per_step, sec_per_step, warn)
        return found

    def _share(
        self, flops: float, seconds: float | DeviceScalar | None, warn: Callable[[str], None]
    ) -> float | DeviceScalar | None:
        if isinstance(seconds, DeviceScalar):
            later = seconds
            return DeviceScalar(later.arrived, lambda: self._at_once(flops, later.item(), warn))
        return self._at_once(flops, seconds, warn)

    def _at_once(self, flops: float, seconds: float | None, warn: Callable[[str], None]) -> float | None:
        if not seconds or self.peak is None:
            return None
        share = flops / seconds / self.peak
        if share > 1:
            warn(f"a utilisation of {share:.2f} cannot be: {self.about}, or the FLOPs of a step, are wrong")
            return None
        return share


def dense_flops(parameters: int, tokens: int) -> int:
    """6N a token, forward and backward, without attention (Kaplan et al. 2020, arXiv:2001.08361)."""
    return 6 * parameters * tokens
