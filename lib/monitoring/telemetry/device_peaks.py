"""Peak floating-point operations per second of devices by data type, from their makers' data sheets.

Matrix products without sparsity: where a datasheet has figures with 2:4 sparsity, these are half of them. A
device that is not listed, or not for a type, has no known peak: nothing here is guessed from another one.

Held to three tables of others [tests/monitoring/telemetry/test_device_peaks.py]: Lightning's
(lightning/fabric/utilities/throughput.py), torchtitan's (torchtitan/tools/utils.py) and nanochat's
(harness/runtime.py, both get_peak_flops). The test names the rows that are in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

T = 1e12


class DevicePeak(NamedTuple):
    """One device and its peaks."""

    pattern: str
    """A regular expression for its name, as torch.cuda.get_device_name gives it."""
    flops: Mapping[str, float]
    """FLOP/s by type: `bfloat16`, `float16`, `tf32` (float32 in TF32) and `float32`."""
    source: str
    mig_slices: int = 7
    """Number of compute slices that MIG divides it into (NVIDIA MIG User Guide, supported profiles)."""


def _half(tensor: float, tf32: float | None, float32: float) -> Mapping[str, float]:
    """Return the peaks, given in TFLOP/s, of a device whose bfloat16 and float16 are equally fast."""
    of_tf32 = {} if tf32 is None else {"tf32": tf32 * T}
    return {"bfloat16": tensor * T, "float16": tensor * T, **of_tf32, "float32": float32 * T}


def _geforce(name: str, tensor: float, float32: float, source: str) -> DevicePeak:
    """Return a GeForce, in TFLOP/s; summing in float32, as torch does, takes it twice as long as in float16.

    Its TF32 is as fast as its float32. Laptops have other GPUs of these names, with words behind them.
    """
    flops = _half(tensor, float32, float32)
    return DevicePeak(rf"\bGeForce RTX {name}$", flops, source)


_AMPERE = "NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix A"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix A"
_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A"
_TPU = "Google Cloud TPU documentation, system architecture"


# The first that fits a name holds.
DEVICES: tuple[DevicePeak, ...] = (
    DevicePeak(
        r"\bGB300\b",
        {"bfloat16": 2500 * T, "float16": 2500 * T, "tf32": 1250 * T},
        "NVIDIA GB300 NVL72 datasheet, a 72nd, without sparsity",
    ),
    DevicePeak(r"\bGB200\b", _half(2500, 1250, 80), "NVIDIA GB200 NVL72 datasheet, a 72nd, without sparsity"),
    DevicePeak(
        r"\bB300\b", _half(2250, 1125, 75.0), "NVIDIA HGX B300 datasheet, an eighth, without sparsity"
    ),
    DevicePeak(r"\bB200\b", _half(2250, 1125, 80), "NVIDIA DGX B200 datasheet, an eighth, without sparsity"),
    DevicePeak(r"\bGH200\b", _half(989.5, 494.5, 67), "NVIDIA GH200 Grace Hopper Superchip datasheet"),
    DevicePeak(r"\bH200 NVL\b", _half(835.5, 417.5, 60), "NVIDIA H200 datasheet, NVL"),
    DevicePeak(r"\bH200\b", _half(989.5, 494.5, 67), "NVIDIA H200 datasheet, SXM"),
    DevicePeak(r"\bH100 NVL\b", _half(835.5, 417.5, 60), "NVIDIA H100 datasheet, NVL"),
    DevicePeak(r"\bH100 PCIe\b", _half(756.5, 378, 51.2), "NVIDIA H100 datasheet, PCIe"),
    DevicePeak(r"\bH100 80GB HBM3\b", _half(989.5, 494.5, 67), "NVIDIA H100 datasheet, SXM"),
    DevicePeak(r"\bH20\b", _half(148, 74.0, 44), "NVIDIA H20 datasheet"),
    DevicePeak(r"\bA100\b", _half(312, 156, 19.5), "NVIDIA A100 datasheet"),
    DevicePeak(r"\bA800\b", _half(312, 156, 19.5), "NVIDIA A800 datasheet"),
    DevicePeak(r"\bA40\b", _half(149.7, 74.8, 37.4), "NVIDIA A40 datasheet"),
    DevicePeak(r"\bA30\b", _half(165, 82, 10.3), "NVIDIA A30 datasheet", mig_slices=4),
    DevicePeak(r"\bA10G\b", _half(70, 35, 35), "NVIDIA A10G datasheet for AWS, 2022"),
    DevicePeak(r"\bA10\b", _half(125, 62.5, 31.2), "NVIDIA A10 datasheet"),
    DevicePeak(r"\bL40S\b", _half(362.05, 183, 91.6), "NVIDIA L40S datasheet"),
    DevicePeak(r"\bL40\b", _half(181.05, 90.5, 90.5), "NVIDIA L40 datasheet"),
    DevicePeak(r"\bL4\b", _half(121, 60, 30.3), "NVIDIA L4 datasheet"),
    DevicePeak(
        r"\bRTX 6000 Ada\b",
        _half(364.2, 182.1, 91.1),
        "NVIDIA RTX 6000 Ada datasheet, a quarter of 1457 (8 bits, sparse)",
    ),
    DevicePeak(r"\bRTX A6000\b", _half(154.8, 77.4, 38.7), _AMPERE),
    _geforce("5090", 209.5, 104.8, _BLACKWELL),
    _geforce("5080", 112.6, 56.3, _BLACKWELL),
    _geforce("5070 Ti", 87.9, 43.9, _BLACKWELL),
    _geforce("5070", 61.7, 30.9, _BLACKWELL),
    _geforce("4090", 165.2, 82.6, _ADA),
    _geforce("4080 SUPER", 104.4, 52.2, "NVIDIA Ada GPU Architecture whitepaper, as Lightning has it"),
    _geforce("4080", 97.5, 48.7, _ADA),
    _geforce("4070 Ti", 80.2, 40.1, _ADA),
    _geforce("3090 Ti", 80, 40, _ADA),
    _geforce("3090", 71.0, 35.6, _AMPERE),
    _geforce("3080 Ti", 68.2, 34.1, "NVIDIA Ampere GA102 whitepaper, as Lightning has it"),
    _geforce("3080", 59.5, 29.8, _AMPERE),
    _geforce("3070", 40.6, 20.3, _AMPERE),
    DevicePeak(r"\bV100-SXM2\b", {"float16": 125 * T, "float32": 15.7 * T}, "NVIDIA V100 datasheet, SXM2"),
    DevicePeak(r"\bV100-PCIE\b", {"float16": 112 * T, "float32": 14 * T}, "NVIDIA V100 datasheet, PCIe"),
    DevicePeak(r"\bT4\b", {"float16": 65.0 * T, "float32": 8.1 * T}, "NVIDIA T4 datasheet"),
    DevicePeak(r"\bMI355X\b", _half(2516.6, None, 157.3), "AMD Instinct MI355X datasheet"),
    DevicePeak(r"\bMI325X\b", _half(1307.4, 653.7, 163.4), "AMD Instinct MI325X datasheet"),
    DevicePeak(r"\bMI300X\b", _half(1307.4, 653.7, 163.4), "AMD Instinct MI300X datasheet"),
    DevicePeak(r"\bMI250X\b", _half(191.5, None, 47.9), "AMD Instinct MI250X datasheet, one of its two dies"),
    DevicePeak(r"(?i)^GAUDI3", {"bfloat16": 1835 * T}, "Intel Gaudi 3 AI Accelerator white paper"),
    DevicePeak(r"(?i)^GAUDI2", {"bfloat16": 432 * T}, "Intel Gaudi 3 AI Accelerator white paper, Gaudi 2"),
    DevicePeak(r"(?i)^TPU v?(6e|6 lite)\b", {"bfloat16": 918 * T}, f"{_TPU}, v6e"),
    DevicePeak(r"(?i)^TPU v?5p\b", {"bfloat16": 459 * T}, f"{_TPU}, v5p"),
    DevicePeak(r"(?i)^TPU v?(5e|5 lite)\b", {"bfloat16": 197 * T}, f"{_TPU}, v5e"),
    DevicePeak(r"(?i)^TPU v?4\b", {"bfloat16": 275 * T}, f"{_TPU}, v4"),
)

# A slice of a GPU, and of a slice some of its compute: `MIG 3g.40gb`, `MIG 1c.3g.40gb`.
_SLICE = re.compile(r"\bMIG (?:(\d)c\.)?(\d)g\.")


def device_peak(name: str) -> DevicePeak | None:
    """Return the device of a name such as `NVIDIA H100 80GB HBM3`; None for one that is not listed.

    A MIG slice (`NVIDIA A100-SXM4-80GB MIG 3g.40gb`) has its share of the GPU.
    """
    found = next((device for device in DEVICES if re.search(device.pattern, name)), None)
    part = _SLICE.search(name)
    if found is None or part is None:
        return found
    count = int(part[1] or part[2])
    share = count / found.mig_slices
    return found._replace(
        flops={dtype: share * flops for dtype, flops in found.flops.items()},
        source=f"{found.source}, {count} of {found.mig_slices} slices",
    )
