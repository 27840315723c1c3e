"""How many floating-point operations a second devices can do at most, as their makers say, by type of number.

Matrix products without sparsity: where a datasheet has figures with 2:4 sparsity, these are half of them. A
device that is not listed, or not for a type, has no known peak: nothing here is guessed from another one.

Held to two tables of others, which cite the makers' pages [tests/monitoring/telemetry/test_device_peaks.py]:
Lightning's (lightning/fabric/utilities/throughput.py) and torchtitan's (torchtitan/tools/utils.py,
get_peak_flops). The A30, and what is not bfloat16 of B200, H100 NVL, L40S, MI250X and MI300X, is in neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

T = 1e12


class DevicePeak(NamedTuple):
    """One device."""

    pattern: str
    """A regular expression for its name, as torch.cuda.get_device_name gives it."""
    flops: Mapping[str, float]
    """FLOP/s by type: `bfloat16`, `float16`, `tf32` (float32 in TF32) and `float32`."""
    source: str


def _half(tensor: float, tf32: float | None, float32: float) -> Mapping[str, float]:
    """Of one whose bfloat16 and float16 are as fast, in TFLOP/s."""
    of_tf32 = {} if tf32 is None else {"tf32": tf32 * T}
    return {"bfloat16": tensor * T, "float16": tensor * T, **of_tf32, "float32": float32 * T}


# The first that fits a name holds.
DEVICES: tuple[DevicePeak, ...] = (
    DevicePeak(r"\bB200\b", _half(2250, 1125, 80), "NVIDIA DGX B200 datasheet, an eighth, without sparsity"),
    DevicePeak(r"\bH200 NVL\b", _half(835.5, 417.5, 60), "NVIDIA H200 datasheet, NVL"),
    DevicePeak(r"\bH200\b", _half(989.5, 494.5, 67), "NVIDIA H200 datasheet, SXM"),
    DevicePeak(r"\bH100 NVL\b", _half(835.5, 417.5, 60), "NVIDIA H100 datasheet, NVL"),
    DevicePeak(r"\bH100 PCIe\b", _half(756.5, 378, 51.2), "NVIDIA H100 datasheet, PCIe"),
    DevicePeak(r"\bH100 80GB HBM3\b", _half(989.5, 494.5, 67), "NVIDIA H100 datasheet, SXM"),
    DevicePeak(r"\bA100\b", _half(312, 156, 19.5), "NVIDIA A100 datasheet"),
    DevicePeak(r"\bA40\b", _half(149.7, 74.8, 37.4), "NVIDIA A40 datasheet"),
    DevicePeak(r"\bA30\b", _half(165, 82, 10.3), "NVIDIA A30 datasheet"),
    DevicePeak(r"\bA10\b", _half(125, 62.5, 31.2), "NVIDIA A10 datasheet"),
    DevicePeak(r"\bL40S\b", _half(362.05, 183, 91.6), "NVIDIA L40S datasheet"),
    DevicePeak(r"\bL4\b", _half(121, 60, 30.3), "NVIDIA L4 datasheet"),
    DevicePeak(r"\bV100-SXM2\b", {"float16": 125 * T, "float32": 15.7 * T}, "NVIDIA V100 datasheet, SXM2"),
    DevicePeak(r"\bV100-PCIE\b", {"float16": 112 * T, "float32": 14 * T}, "NVIDIA V100 datasheet, PCIe"),
    DevicePeak(r"\bT4\b", {"float16": 65.0 * T, "float32": 8.1 * T}, "NVIDIA T4 datasheet"),
    DevicePeak(r"\bMI300X\b", _half(1307.4, 653.7, 163.4), "AMD Instinct MI300X datasheet"),
    DevicePeak(r"\bMI250X\b", _half(191.5, None, 47.9), "AMD Instinct MI250X datasheet, one of its two dies"),
)


def device_peak(name: str) -> DevicePeak | None:
    """The device of a name such as `NVIDIA H100 80GB HBM3`; None for one that is not listed."""
    return next((device for device in DEVICES if re.search(device.pattern, name)), None)
