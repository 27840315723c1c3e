"""The table of devices beside those of Lightning and torchtitan, row by row."""

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
    """Of its figure for matrix products: half, where that is with sparsity."""
    of_int8: bool = False
    """Its bfloat16 is that of vectors: that of matrices is half of its int8."""


LIGHTNING = {
    "NVIDIA H200 NVL": Other("h200 nvl1", 0.5),
    "NVIDIA H200": Other("h200 sxm1", 0.5),
    "NVIDIA H100 PCIe": Other("h100 pcie"),
    "NVIDIA H100 80GB HBM3": Other("h100 sxm"),
    "NVIDIA A100-SXM4-80GB": Other("a100"),
    "NVIDIA A40": Other("a40", of_int8=True),
    "NVIDIA A10": Other("a10g"),
    "NVIDIA L4": Other("l4"),
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

# In neither; Lightning's H100 NVL is that of two, of an early datasheet.
ALONE = {"NVIDIA A30"}


@pytest.fixture(scope="module")
def lightning() -> Mapping[str, Mapping[str, float]]:
    """Lightning's table, without importing it."""
    found = importlib.util.find_spec("lightning")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse((Path(found.origin).parent / "fabric/utilities/throughput.py").read_text())
    [table] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_CUDA_FLOPS" and node.value
    ]
    names = {"torch": SimpleNamespace(**{name: name for name in TYPES})}
    of: Mapping[str, Mapping[str, float]] = eval(ast.unparse(table), names)
    return {
        chip: {name.replace("tfloat32", "tf32"): it for name, it in row.items()} for chip, row in of.items()
    }


@pytest.mark.parametrize("name", LIGHTNING)
def test_a_row_is_that_of_lightning(name: str, lightning: Mapping[str, Mapping[str, float]]) -> None:
    """Whose figures of the H200 have two digits."""
    device, other = device_peak(name), LIGHTNING[name]
    assert device is not None
    theirs = dict(lightning[other.chip])
    if other.of_int8:
        theirs |= {"bfloat16": theirs["int8"] / 2, "float16": theirs["int8"] / 2}
    wanted = {dtype: theirs[dtype] * (1.0 if dtype == "float32" else other.share) for dtype in device.flops}
    assert device.flops == pytest.approx(wanted, rel=0.02 if other.share < 1 else 0.002)


@pytest.mark.parametrize("name", TORCHTITAN)
def test_a_row_is_that_of_torchtitan(name: str) -> None:
    device = device_peak(name)
    assert device is not None
    assert device.flops["bfloat16"] == pytest.approx(TORCHTITAN[name], rel=0.006)


def test_each_row_was_compared_or_is_named() -> None:
    compared = [device_peak(name) for name in (*LIGHTNING, *TORCHTITAN)]
    assert [device for device in DEVICES if device not in compared] == [device_peak(name) for name in ALONE]
