"""AMD GPUs, through the files of the kernel's amdgpu driver; no library of AMD's is needed.

Their names and units are in docs.kernel.org/gpu/amdgpu/thermal.html (hwmon: millidegrees, microwatts, Hz, a
pulse width up to 255) and docs.kernel.org/gpu/amdgpu/driver-misc.html (percent and bytes). Never `pcie_bw`,
which measures for a second. There is no energy counter: energy is integrated power.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.gpu.sample import MIB, SLOT, DeviceInfo
from monitoring.samplers._selection import Identity, Visible, visible, visible_to_any
from monitoring.samplers._sysfs import (
    Card,
    KeptFile,
    SysfsGpu,
    SysfsSampler,
    Value,
    cards,
    discrete,
    labeled,
    node,
    text,
)

VENDOR_ID = "0x1002"

MICRO, MILLI, MEGA = 1_000_000, 1000, 1_000_000

# The steps of a fan's pulse width (the kernel's hwmon interface).
FULL_FAN = 255


def probe(root: Path = Path("/")) -> SysfsSampler | None:
    """Return the AMD GPUs below `root`/sys; None without any."""
    found = cards(root, VENDOR_ID)
    if not found:
        return None
    identities = [Identity(_uuid(card)) for card in found]
    selected = visible_to_any(os.environ, lambda one: visible(identities, _variables(one), one))
    gpus = discrete([_gpu(one, found[one.place]) for one in selected])
    return SysfsSampler("amd", gpus, num_devices=len(found))


def _variables(environment: Mapping[str, str]) -> list[str]:
    """ROCm hides first, HIP selects among the rest; HIP takes CUDA's variable where its own is not set."""
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environment else "CUDA_VISIBLE_DEVICES"
    return ["ROCR_VISIBLE_DEVICES", hip]


def _uuid(card: Card) -> str | None:
    """Return the UUID as ROCm writes it; consumer cards have none."""
    unique = text(card.device / "unique_id")
    return f"GPU-{unique}" if unique is not None else None


def _gpu(one: Visible, card: Card) -> SysfsGpu:
    device, hwmon = card.device, card.hwmon
    name = text(device / "product_name") or f"AMD GPU {text(device / 'device')}"
    temperatures = labeled(hwmon, "temp")
    # MI300 and later have no sensor at the edge (hwmon_attributes_visible in amdgpu_pm.c)
    core = temperatures.get("edge") or temperatures.get("1") or temperatures.get("junction")
    values = [
        Value("utilization_percent", device / "gpu_busy_percent"),
        Value("memory_utilization_percent", device / "mem_busy_percent"),
        Value("memory_used_mb", device / "mem_info_vram_used", MIB),
        Value("memory_total_mb", device / "mem_info_vram_total", MIB),
        Value("pcie_replay_count", device / "pcie_replay_count"),
        Value("temperature_celsius", core, MILLI),
        Value("temperature_hotspot_celsius", temperatures.get("junction"), MILLI),
        Value("temperature_memory_celsius", temperatures.get("mem"), MILLI),
    ]
    if hwmon is not None:
        values += [
            Value("power_draw_watts", hwmon / "power1_input", MICRO),
            Value("power_average_watts", hwmon / "power1_average", MICRO),
            Value("power_draw_watts", hwmon / "power1_average", MICRO),
            Value("power_limit_watts", hwmon / "power1_cap", MICRO),
            Value("clock_sm_mhz", hwmon / "freq1_input", MEGA),
            Value("clock_memory_mhz", hwmon / "freq2_input", MEGA),
            Value("fan_speed_percent", hwmon / "pwm1"),
        ]
    # only the graphics part of a processor has a voltage of the processor's northbridge
    integrated = hwmon is not None and (hwmon / "in1_input").exists()
    info = DeviceInfo(
        one.place,
        _uuid(card),
        name,
        "amd",
        card.pci_bus_id,
        node(device),
        integrated,
        visible_index=one.number,
    )
    return SysfsGpu(info, card, values, _AmdDerived(temperatures))


class _AmdDerived:
    """The values of AMD's that are made of others."""

    def __init__(self, temperatures: Mapping[str, Path]) -> None:
        """The margin is that of the hottest spot, where the card reports its limit."""
        hot = temperatures.get("junction") or temperatures.get("edge")
        name = "temperature_hotspot_celsius" if "junction" in temperatures else "temperature_celsius"
        self._hot = SLOT[name]
        file = KeptFile(hot.with_name(hot.name.replace("_input", "_crit")) if hot is not None else None)
        self._limit = file.number()
        file.close()

    def __call__(self, values: list[Any]) -> None:
        fan, margin = SLOT["fan_speed_percent"], SLOT["temperature_margin_celsius"]
        if values[fan] is not None:
            values[fan] = 100 * values[fan] / FULL_FAN
        if self._limit is not None and values[self._hot] is not None:
            values[margin] = self._limit / MILLI - values[self._hot]

    def close(self) -> None:
        pass
