"""Model FLOPs utilization: the share of a device's peak that goes into the model's own operations.

As in Chowdhery et al. 2022 (PaLM, arXiv:2204.02311), appendix B. The hardware's utilization also counts what
is computed twice, as by activation checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitoring.journal.journal import say
from monitoring.telemetry.device_peaks import device_peak
from monitoring.telemetry.device_pool import DeviceScalar

UNMEASURED: Mapping[str, None] = {"step_mfu": None, "overall_mfu": None}


class OneWarning:
    """Prints the first sentence on MFU that it is called with, and no other."""

    def __init__(self) -> None:
        self._is_said = False

    def __call__(self, sentence: str) -> None:
        if not self._is_said:
            self._is_said = True
            say(f"warning: MFU: {sentence}")


@dataclass(frozen=True)
class Utilization:
    """The FLOPs that a training needs, and the peak of its devices."""

    flops_per_step: float
    """FLOPs per step of the model, forward and backward, on all devices together."""
    peak: float | None
    """FLOP/s of all devices together, at the types that these FLOPs are computed in; None if not known."""
    hardware_flops_per_step: float | None = None
    """FLOPs per step with those computed twice; None where none are."""
    about: str = ""
    """Where the peak comes from, or why it is not known."""
    hardware_peak: float | None = None
    """FLOP/s like `peak`, of FLOPs with those computed twice, where these are of other types."""

    @classmethod
    def of(
        cls,
        flops_per_step: float | Mapping[str, float],
        *,
        device: str,
        dtype: str = "",
        num_devices: int = 1,
        hardware_flops_per_step: float | Mapping[str, float] | None = None,
    ) -> Utilization:
        """Return it by the table of devices; `device` is a name as torch.cuda.get_device_name gives it.

        FLOPs of one `dtype`, or by the types that they are computed in (`{"bfloat16": …, "tf32": …}`).
        """
        flops = _by_type(flops_per_step, dtype)
        found = device_peak(device)
        peaks = found.flops if found is not None else {}
        if found is None:
            about = f"no peak FLOP/s known of {device}"
        elif missing := [name for name in flops if name not in peaks]:
            about = f"no peak FLOP/s known of {device} in {', '.join(map(_shares(flops), missing))}"
        else:
            types = [
                f"{peaks[name] / 1e12:g} TFLOP/s of {device} in {_shares(flops)(name)}" for name in flops
            ]
            about = f"{', '.join(types)} ({found.source})"
        hardware = None if hardware_flops_per_step is None else _by_type(hardware_flops_per_step, dtype)
        return cls(
            sum(flops.values()),
            _peak(flops, peaks, num_devices),
            None if hardware is None else sum(hardware.values()),
            about,
            None if hardware is None else _peak(hardware, peaks, num_devices),
        )

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
            "step_mfu": self._share(self.flops_per_step / self.peak, sec_per_step, warn),
            "overall_mfu": self._share(self.flops_per_step * steps / self.peak, seconds, warn),
        }
        if self.hardware_flops_per_step is not None:
            at_least = self.hardware_flops_per_step / (self.hardware_peak or self.peak)
            found["step_hfu"] = self._share(at_least, sec_per_step, warn)
        return found

    def _share(
        self, at_least: float, seconds: float | DeviceScalar | None, warn: Callable[[str], None]
    ) -> float | DeviceScalar | None:
        """Return the share of `seconds` that the devices need at their peak, which is `at_least`."""
        if isinstance(seconds, DeviceScalar):
            later = seconds
            return DeviceScalar(later.arrived, lambda: self._at_once(at_least, later.item(), warn))
        return self._at_once(at_least, seconds, warn)

    def _at_once(self, at_least: float, seconds: float | None, warn: Callable[[str], None]) -> float | None:
        if not seconds:
            return None
        share = at_least / seconds
        if share > 1:
            warn(f"a utilization of {share:.2f} cannot be: {self.about}, or the FLOPs of a step, are wrong")
            return None
        return share


def _by_type(flops: float | Mapping[str, float], dtype: str) -> Mapping[str, float]:
    return flops if isinstance(flops, Mapping) else {dtype: flops}


def _peak(flops: Mapping[str, float], peaks: Mapping[str, float], num_devices: int) -> float | None:
    """Return the FLOP/s at which devices do all these FLOPs, in the sum of the times of each type."""
    if not flops or any(name not in peaks for name in flops):
        return None
    seconds = sum(count / peaks[name] for name, count in flops.items())
    return num_devices * sum(flops.values()) / seconds if seconds else None


def _shares(flops: Mapping[str, float]) -> Callable[[str], str]:
    """Return the naming of a type, with its share where there are several."""
    whole = sum(flops.values())
    return lambda name: f"{name} ({flops[name] / whole:.1%})" if len(flops) > 1 and whole else name


def dense_flops(parameters: int, tokens: int) -> int:
    """Return 6N FLOPs per token, of both passes, without attention (Kaplan et al. 2020, arXiv:2001.08361)."""
    return 6 * parameters * tokens
