"""Model FLOPs utilization by the table of devices; what is not known is null, what cannot be no number."""

from __future__ import annotations

import re

import pytest

from monitoring.telemetry.device_peaks import DEVICES, device_peak
from monitoring.telemetry.device_pool import DeviceScalar
from monitoring.telemetry.utilization import Utilization, dense_flops

H100 = "NVIDIA H100 80GB HBM3"


def test_a_step_and_all_of_a_training_are_shares_of_the_peak_of_all_devices() -> None:
    said: list[str] = []
    use = Utilization.of(
        989.5e12, device=H100, dtype="bfloat16", num_devices=2, hardware_flops_per_step=1.319e15
    )
    assert use.about == f"989.5 TFLOP/s of {H100} in bfloat16 (NVIDIA H100 datasheet, SXM)"
    found = use.measured(1.0, seconds=40.0, steps=20, warn=said.append)
    assert found == pytest.approx({"step_mfu": 0.5, "overall_mfu": 0.25, "step_hfu": 0.6665}, rel=1e-3)
    assert said == []


def test_a_number_of_a_device_stays_under_way() -> None:
    later = DeviceScalar(lambda: False, lambda: 0.5)
    use = Utilization.of(1e12, device="NVIDIA T4", dtype="float32")
    share = use.measured(later, seconds=0.0, steps=0, warn=print)["step_mfu"]
    assert isinstance(share, DeviceScalar)
    assert not share.arrived()
    assert share.item() == pytest.approx(2 / 8.1)


@pytest.mark.parametrize(
    ("device", "dtype", "about"),
    [
        ("cpu", "float32", "no peak FLOP/s known of cpu"),
        ("NVIDIA V100-SXM2-16GB", "bfloat16", "no peak FLOP/s known of NVIDIA V100-SXM2-16GB in bfloat16"),
    ],
)
def test_an_unknown_device_has_no_share(device: str, dtype: str, about: str) -> None:
    use = Utilization.of(1e12, device=device, dtype=dtype)
    assert use.about == about
    assert use.measured(1.0, seconds=1.0, steps=1, warn=print) == {"step_mfu": None, "overall_mfu": None}


def test_more_than_all_is_reported_and_no_number() -> None:
    said: list[str] = []
    use = Utilization.of(3e12, device="made up", dtype="float32")
    use = Utilization(use.flops_per_step, 1e12, about="1 TFLOP/s")
    assert use.measured(1.0, seconds=6.0, steps=1, warn=said.append) == {"step_mfu": None, "overall_mfu": 0.5}
    assert said == ["a utilization of 3.00 cannot be: 1 TFLOP/s, or the FLOPs of a step, are wrong"]


def test_names_as_torch_gives_them_find_their_own_device() -> None:
    names = {
        "NVIDIA A100-SXM4-80GB": 312e12,
        "NVIDIA A100 80GB PCIe": 312e12,
        "NVIDIA H100 PCIe": 756.5e12,
        "NVIDIA H100 NVL": 835.5e12,
        H100: 989.5e12,
        "NVIDIA H200": 989.5e12,
        "NVIDIA L4": 121e12,
        "NVIDIA L40S": 362.05e12,
        "NVIDIA A10": 125e12,
        "AMD Instinct MI300X": 1307.4e12,
    }
    found = {name: device_peak(name) for name in names}
    assert {name: peak and peak.flops["bfloat16"] for name, peak in found.items()} == names
    assert [device_peak(name) for name in ("NVIDIA H100", "NVIDIA B2000", "cpu", "")] == [None] * 4


def test_every_peak_has_a_source_and_types_in_order() -> None:
    for device in DEVICES:
        assert re.search("datasheet|white ?paper|documentation", device.source)
        assert list(device.flops.values()) == sorted(device.flops.values(), reverse=True)


def test_the_usual_formula_stands_beside() -> None:
    assert dense_flops(124_000_000, 1024) == 6 * 124_000_000 * 1024


def test_flops_of_several_types_take_each_its_own_time() -> None:
    """A ResNet in float32 on an A100 runs its convolutions in TF32 and its last layer in float32."""
    name = "NVIDIA A100-SXM4-80GB"
    use = Utilization.of(
        {"tf32": 155e12, "float32": 0.5e12}, device=name, hardware_flops_per_step={"tf32": 310e12}
    )
    assert use.about == (
        f"156 TFLOP/s of {name} in tf32 (99.7%), 19.5 TFLOP/s of {name} in float32 (0.3%) "
        "(NVIDIA A100 datasheet)"
    )
    found = use.measured(2.0, seconds=40.0, steps=10, warn=print)
    seconds = 155 / 156 + 0.5 / 19.5
    assert found == pytest.approx(
        {"step_mfu": seconds / 2, "overall_mfu": seconds / 4, "step_hfu": 310 / 156 / 2}
    )


def test_a_type_without_a_peak_leaves_no_share() -> None:
    use = Utilization.of({"bfloat16": 3e12, "float64": 1e12}, device=H100)
    assert (use.peak, use.about) == (None, f"no peak FLOP/s known of {H100} in float64 (25.0%)")
