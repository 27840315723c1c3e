"""GPUs of a demonstration: they come through the process that samples real ones, and say what they are."""

from __future__ import annotations

import contextlib

import pytest

from monitoring.sampler_process.process import SamplerProcess
from monitoring.samplers import probe_all
from monitoring.samplers._simulated import SimulatedSampler


def test_simulated_gpus_come_by_the_way_of_real_ones() -> None:
    with contextlib.closing(SamplerProcess(simulated=4)) as process:
        sampler, problems = process.open()
        assert (sampler is process, problems, process.vendor, process.num_devices) == (
            True,
            [],
            "simulated",
            4,
        )
        samples = process.sample()
    assert [(one.index, one.uuid, one.name, one.vendor, one.state, one.error) for one in samples] == [
        (0, None, "Simulated GPU", "simulated", "ok", None),
        (1, None, "Simulated GPU", "simulated", "ok", None),
        (2, None, "Simulated GPU", "simulated", "ok", None),
        (3, None, "Simulated GPU", "simulated", "lost", "GPU is lost (simulated)"),
    ]
    assert [one.throttle_reasons for one in samples] == [[], ["sw_thermal_slowdown"], [], None]


def test_values_are_waves_between_what_a_gpu_can_have() -> None:
    now = 0.0
    sampler = SimulatedSampler(64, clock=lambda: now)
    first = sampler.sample()[0]
    assert (first.utilization_percent, first.memory_used_mb, first.temperature_celsius) == (55, 30_000, 52)
    now = 3.5  # half of its rhythm of 7 s: the wave's top
    assert sampler.sample()[0].utilization_percent == 90
    seen = []
    for step in range(200):
        now = step * 0.7
        seen += [one for one in sampler.sample() if one.state == "ok"]
    assert len(seen) == 200 * 63
    for name, most in (
        ("utilization_percent", 100),
        ("memory_percent", 100),
        ("temperature_celsius", 100),
        ("power_draw_watts", 700),
    ):
        values = [getattr(one, name) for one in seen]
        assert 0 < min(values) < max(values) <= most, name
    assert {(one.memory_used_mb or 0) + (one.memory_free_mb or 0) for one in seen} == {81920}


@pytest.mark.parametrize("simulated", [1, 3, 64])
def test_nothing_else_is_sampled_beside_them(simulated: int) -> None:
    sampler, problems = probe_all(simulated=simulated)
    assert sampler is not None
    assert (problems, [device.vendor for device in sampler.devices()]) == ([], ["simulated"] * simulated)
    assert len(sampler.sample()) == simulated
