"""The simulated NVML beside a sample of a real NVIDIA H200 (h200.json).

Recorded by an agent while LeNet-5 trained: driver 580.159.04, 28 November 2026. Its UUID is the simulation's
here, and its process, which had a number of its own, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Sampling

RECORDED = json.loads(Path(__file__).with_name("h200.json").read_text())

# Name in the simulation -> field of the recorded sample; null is what the driver refused.
FIELDS = {
    "utilization": "utilization_percent",
    "memory_utilization": "memory_utilization_percent",
    "memory_total": "memory_total_mb",
    "memory_used": "memory_used_mb",
    "temperature": "temperature_celsius",
    "memory_temperature": "temperature_memory_celsius",
    "margin": "temperature_margin_celsius",
    "power": "power_draw_watts",
    "power_average": "power_average_watts",
    "power_limit": "power_limit_watts",
    "energy": "energy_counter_joules",
    "fan": "fan_speed_percent",
    "sm_clock": "clock_sm_mhz",
    "memory_clock": "clock_memory_mhz",
    "pcie_tx": "pcie_tx_bytes",
    "pcie_rx": "pcie_rx_bytes",
    "nvlink_tx": "nvlink_tx_bytes",
    "nvlink_rx": "nvlink_rx_bytes",
    "sm_activity": "sm_activity_percent",
    "tensor_activity": "tensor_activity_percent",
    "dram_activity": "dram_activity_percent",
}


def test_the_simulation_gives_what_an_h200_gave(sampling: Callable[..., Sampling]) -> None:
    values = {name: RECORDED[field] for name, field in FIELDS.items()}
    reserved = RECORDED["memory_total_mb"] - RECORDED["memory_used_mb"] - RECORDED["memory_free_mb"]
    script = [f"all {name} {'unsupported' if value is None else value}" for name, value in values.items()]
    told = ["gpus 1", f"all name {RECORDED['name']}", f"all memory_reserved {reserved}", "all throttle 0"]
    process = sampling(*told, *script)
    process.sample()  # activity is a mean since the sample before
    [found] = process.sample()
    of_an_agent = dict.fromkeys(("energy_joules", "energy_source", "run_share"))
    exact = {**RECORDED, **of_an_agent}
    assert found == {name: pytest.approx(v) if isinstance(v, float) else v for name, v in exact.items()}
