"""The table of devices beside those of Lightning, torchtitan and nanochat, row by row."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from monitoring.telemetry.device_peaks import DEVICES, device_peak

TYPES = ("bfloat16", "float16", "float32", "float64", "int8")


class Other(NamedTuple):
    """How Lightning's table has a device."""

    chip: str
    share: float = 1.0
    """Factor on its figure for matrix products: half, where that is with sparsity."""
    of_int8: float = 0.0
    """Its bfloat16 is that of vectors: that of matrices is so much of its int8."""


LIGHTNING = {
    "NVIDIA H200 NVL": Other("h200 nvl1", 0.5),
    "NVIDIA H200": Other("h200 sxm1", 0.5),
    "NVIDIA H100 PCIe": Other("h100 pcie"),
    "NVIDIA H100 80GB HBM3": Other("h100 sxm"),
    "NVIDIA A100-SXM4-80GB": Other("a100"),
    "NVIDIA A40": Other("a40", of_int8=0.5),
    "NVIDIA A10": Other("a10g"),
    "NVIDIA L4": Other("l4"),
    "NVIDIA L40": Other("l40"),
    "NVIDIA RTX A6000": Other("a6000", of_int8=0.5),
    "NVIDIA GeForce RTX 4090": Other("rtx 4090", of_int8=0.25),
    "NVIDIA GeForce RTX 4080 SUPER": Other("rtx 4080 super", of_int8=0.25),
    "NVIDIA GeForce RTX 4080": Other("rtx 4080", of_int8=0.25),
    "NVIDIA GeForce RTX 3090 Ti": Other("rtx 3090 ti", of_int8=0.25),
    "NVIDIA GeForce RTX 3090": Other("rtx 3090", of_int8=0.25),
    "NVIDIA GeForce RTX 3080 Ti": Other("rtx 3080 ti", of_int8=0.25),
    "NVIDIA GeForce RTX 3080": Other("rtx 3080", of_int8=0.25),
    "NVIDIA GeForce RTX 3070": Other("rtx 3070", of_int8=0.25),
    "Tesla V100-SXM2-16GB": Other("v100 sxm"),
    "Tesla V100-PCIE-16GB": Other("v100 pcie"),
    "Tesla T4": Other("t4"),
}

# pytorch/torchtitan at 02581674d, torchtitan/tools/utils.py: bfloat16 without sparsity.
TORCHTITAN = {
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2.25e15,
    "NVIDIA L40S": 362e12,
    "AMD Instinct MI300X": 1300e12,
    "AMD Instinct MI250X": 191.5e12,
}

# karpathy/nanochat at 03880dbc4, harness/runtime.py: bfloat16 without sparsity.
NANOCHAT = {
    "NVIDIA GB200": 2.5e15,
    "NVIDIA B200": 2.25e15,
    "NVIDIA H200 NVL": 836e12,
    "NVIDIA A800-SXM4-80GB": 312e12,
    "NVIDIA A30": 165e12,
    "AMD Instinct MI355X": 2.5e15,
    "AMD Instinct MI325X": 1.3074e15,
    "AMD Instinct MI300X": 1.3074e15,
    "NVIDIA GeForce RTX 5090": 209.5e12,
    "NVIDIA GeForce RTX 4090": 165.2e12,
    "NVIDIA GeForce RTX 3090": 71e12,
}

# Lightning's, of which matrix products are always in bfloat16.
LIGHTNING_TPU = {"TPU v5 lite": "v5litepod", "TPU v4": "v4"}

# By their makers alone; Lightning's H100 NVL is that of two, of an early datasheet, and its A10G an A10.
ALONE = {
    "NVIDIA GB300",
    "NVIDIA B300 SXM6 AC",
    "NVIDIA GH200 480GB",
    "NVIDIA H20",
    "NVIDIA A10G",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA GeForce RTX 5080",
    "NVIDIA GeForce RTX 5070 Ti",
    "NVIDIA GeForce RTX 5070",
    "NVIDIA GeForce RTX 4070 Ti",
    "GAUDI3",
    "GAUDI2",
    "TPU v6e",
    "TPU v5p",
}


@pytest.fixture(scope="module")
def lightning() -> Mapping[str, Mapping[str, float]]:
    """Lightning's table of GPUs."""
    return table_of_lightning("_CUDA_FLOPS")


def table_of_lightning(called: str) -> Mapping[str, Mapping[str, float]]:
    """Without importing it."""
    found = importlib.util.find_spec("lightning")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse((Path(found.origin).parent / "fabric/utilities/throughput.py").read_text())
    [table] = [
        node.value
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and ast.unparse(node).split(maxsplit=1)[0].rstrip(":") == called
        and node.value
    ]
    names = {"torch": SimpleNamespace(**{name: name for name in TYPES})}
    of: Mapping[str, Mapping[str, float] | float] = eval(ast.unparse(table), names)
    return {
        chip: {name.replace("tfloat32", "tf32"): it for name, it in row.items()}
        if isinstance(row, Mapping)
        else {"bfloat16": row}
        for chip, row in of.items()
    }


@pytest.mark.parametrize("name", LIGHTNING)
def test_a_row_is_that_of_lightning(name: str, lightning: Mapping[str, Mapping[str, float]]) -> None:
    """Whose figures of the H200 have two digits."""
    device, other = device_peak(name), LIGHTNING[name]
    assert device is not None
    theirs = dict(lightning[other.chip])
    if other.of_int8:
        theirs |= {"bfloat16": other.of_int8 * theirs["int8"], "float16": other.of_int8 * theirs["int8"]}
    wanted = {dtype: theirs[dtype] * (1.0 if dtype == "float32" else other.share) for dtype in device.flops}
    assert device.flops == pytest.approx(wanted, rel=0.02 if other.share < 1 else 0.002)


@pytest.mark.parametrize("name", TORCHTITAN)
def test_a_row_is_that_of_torchtitan(name: str) -> None:
    device = device_peak(name)
    assert device is not None
    assert device.flops["bfloat16"] == pytest.approx(TORCHTITAN[name], rel=0.006)


@pytest.mark.parametrize("name", NANOCHAT)
def test_a_row_is_that_of_nanochat(name: str) -> None:
    device = device_peak(name)
    assert device is not None
    assert device.flops["bfloat16"] == pytest.approx(NANOCHAT[name], rel=0.007)


@pytest.mark.parametrize("name", LIGHTNING_TPU)
def test_a_tpu_is_that_of_lightning(name: str) -> None:
    device = device_peak(name)
    assert device is not None
    assert device.flops == table_of_lightning("_TPU_FLOPS")[LIGHTNING_TPU[name]]


def test_each_row_was_compared_or_is_named() -> None:
    compared = [device_peak(name) for name in (*LIGHTNING, *TORCHTITAN, *NANOCHAT, *LIGHTNING_TPU)]
    alone = [device_peak(name) for name in ALONE]
    assert None not in alone
    left = {device.pattern for device in DEVICES if device not in compared}
    assert left == {device.pattern for device in alone if device is not None}


@pytest.mark.parametrize(
    ("name", "bfloat16", "source"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 3 / 7 * 312e12, "NVIDIA A100 datasheet, 3 of 7 slices"),
        ("NVIDIA A30 MIG 1g.6gb", 165e12 / 4, "NVIDIA A30 datasheet, 1 of 4 slices"),
        (
            "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb",
            989.5e12 / 7,
            "NVIDIA H100 datasheet, SXM, 1 of 7 slices",
        ),
        ("NVIDIA H200 MIG 7g.141gb", 989.5e12, "NVIDIA H200 datasheet, SXM, 7 of 7 slices"),
    ],
)
def test_a_slice_of_a_gpu_has_its_share(name: str, bfloat16: float, source: str) -> None:
    device = device_peak(name)
    assert device is not None
    assert device.flops["bfloat16"] == pytest.approx(bfloat16)
    assert device.source == source


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA RTX 6000", "TPU v3"]
)
def test_another_device_of_nearly_that_name_has_no_peak(name: str) -> None:
    assert device_peak(name) is None
