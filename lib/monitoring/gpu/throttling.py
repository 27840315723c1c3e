"""Why NVIDIA's driver lowers the clocks of a GPU: the bits of nvmlClocksEventReason and their names."""

from __future__ import annotations

import functools
from collections.abc import Iterable

# Bit -> its name in nvml.h.
THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    # not in nvml.h; NVIDIA's pynvml has them
    0x200: "board_limit",
    0x400: "reliability",
}


@functools.lru_cache(maxsize=256)
def reasons_of(bits: int) -> list[str]:
    """Return the names of the reasons; a bit without a name gives its number."""
    named = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return [*named, *([f"0x{rest:x}"] if rest else [])]


def bits_of(reasons: Iterable[str]) -> int:
    """Return the bit mask of these throttle reasons, ignoring unknown names."""
    bits = {name: bit for bit, name in THROTTLE_REASONS.items()}
    return sum(int(name, 16) if name.startswith("0x") else bits.get(name, 0) for name in reasons)
