"""Energy, hours and cost over gaps, agents and attempts."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.gpu.energy import EnergyMeter
from monitoring.gpu.sample import GpuSample


def sample(
    index: int = 0, *, counter: float | None = None, power: float | None = None, **more: Any
) -> GpuSample:
    return GpuSample(
        index,
        f"GPU-{index}",
        "simulated",
        "nvidia",
        more.pop("state", "ok"),
        energy_counter_joules=counter,
        power_draw_watts=power,
        **more,
    )


def record(meter: EnergyMeter, samples: list[GpuSample], time: float) -> dict[str, Any]:
    """What gpu_stats.jsonl would hold of it."""
    measured, totals = meter.measure(samples, time)
    return {
        "time": time,
        "multi_gpu_data": [sample._asdict() for sample in measured],
        "aggregate_stats": totals,
    }


def test_counter_counts_from_the_first_sample_on() -> None:
    meter = EnergyMeter(started=0.0)
    meter.measure([sample(counter=1000, power=500)], 1.0)
    measured, totals = meter.measure([sample(counter=1600, power=500)], 2.0)
    assert (measured[0].energy_joules, measured[0].energy_source) == (600, "counter")
    assert totals == {
        "energy_joules": 600,
        "energy_source": "counter",
        "gpu_hours": 2 / 3600,
        "cost": None,
        "unmeasured_seconds": 0,
    }


def test_power_is_integrated_where_there_is_no_counter() -> None:
    meter = EnergyMeter(started=0.0)
    for time, power in ((0.0, 100), (1.0, 300), (3.0, 300)):
        measured, totals = meter.measure([sample(power=power)], time)
    assert (measured[0].energy_joules, measured[0].energy_source) == (200 + 600, "integrated")
    assert (totals["energy_joules"], totals["energy_source"]) == (800, "integrated")


def test_gap_is_measured_by_a_counter_and_not_by_power() -> None:
    meter = EnergyMeter(started=0.0, interval=1.0)
    meter.measure([sample(0, counter=0), sample(1, power=100)], 0.0)
    _, totals = meter.measure([sample(0, counter=50_000), sample(1, power=100)], 100.0)
    assert (totals["energy_joules"], totals["energy_source"]) == (50_000, "counter+integrated")
    assert (totals["unmeasured_seconds"], totals["gpu_hours"]) == (100, 200 / 3600)


def test_counter_that_begins_anew_adds_nothing_for_the_jump() -> None:
    meter = EnergyMeter(started=0.0)
    for time, counter in enumerate([5000, 5100, 20, 70]):
        _, totals = meter.measure([sample(counter=counter)], float(time))
    assert totals["energy_joules"] == 150


def test_counter_that_is_not_told_for_a_while_counts_once() -> None:
    """Its power is counted meanwhile, and is in what the counter then tells."""
    meter = EnergyMeter(started=0.0)
    totals = []
    for time, counter in enumerate([1000, None, None, 1350, 1450]):
        _, told = meter.measure([sample(counter=counter, power=100)], float(time))
        totals.append(told["energy_joules"])
    assert totals == [0, 100, 200, 350, 450]


def test_counter_that_tells_less_than_its_power_did_takes_nothing_back() -> None:
    meter = EnergyMeter(started=0.0)
    totals = []
    for time, counter in enumerate([1000, None, 1060, 1160]):
        _, told = meter.measure([sample(counter=counter, power=100)], float(time))
        totals.append(told["energy_joules"])
    assert totals == [0, 100, 100, 200]


def test_lost_gpu_keeps_what_it_had_used() -> None:
    meter = EnergyMeter(started=0.0)
    meter.measure([sample(0, power=100), sample(1, counter=0)], 0.0)
    meter.measure([sample(0, power=100), sample(1, counter=70)], 1.0)
    measured, totals = meter.measure([sample(0, state="lost"), sample(1, counter=140)], 2.0)
    assert ([it.energy_joules for it in measured], totals["energy_joules"]) == ([100, 140], 240)
    # of the time in which nobody could ask it nothing is known
    meter.measure([sample(0, power=100), sample(1, counter=210)], 3.0)
    _, totals = meter.measure([sample(0, power=100), sample(1, counter=280)], 4.0)
    assert totals["energy_joules"] == 200 + 280


def test_agent_that_takes_over_counts_what_went_on_without_it() -> None:
    first = EnergyMeter(started=0.0)
    record(first, [sample(counter=1000)], 1.0)
    last = record(first, [sample(counter=1500)], 2.0)
    second = EnergyMeter(started=0.0)
    second.resume(last, same_attempt=True)
    _, totals = second.measure([sample(counter=9500)], 18.0)
    assert totals == {
        "energy_joules": 8500,
        "energy_source": "counter",
        "gpu_hours": 18 / 3600,
        "cost": None,
        "unmeasured_seconds": 16,
    }


def test_further_attempt_adds_to_the_run_without_the_time_between() -> None:
    first = EnergyMeter(started=0.0, hour_price=3.6)
    record(first, [sample(0, counter=0), sample(1, counter=0)], 0.0)
    last = record(first, [sample(0, counter=700), sample(1, counter=300)], 1.0)
    assert last["aggregate_stats"]["cost"] == pytest.approx(2 * 3.6 / 3600)

    second = EnergyMeter(started=1000.0, hour_price=3.6)  # on one of the GPUs, an hour of others' work later
    second.resume(last, same_attempt=False)
    second.measure([sample(0, counter=900_000)], 1000.0)
    measured, totals = second.measure([sample(0, counter=900_050)], 1001.0)
    assert measured[0].energy_joules == 750
    assert totals["energy_joules"] == 1050
    assert totals["gpu_hours"] == pytest.approx(3 / 3600)
    assert totals["cost"] == pytest.approx(3 * 3.6 / 3600)

    # a third one, of whose last record the other GPU is no part
    third = EnergyMeter(started=2000.0, hour_price=3.6)
    third.resume(record(second, [sample(0, counter=900_100)], 1002.0) | {"attempt": 2}, same_attempt=False)
    third.measure([sample(0, counter=0)], 2000.0)
    _, totals = third.measure([sample(0, counter=25)], 2001.0)
    assert totals["energy_joules"] == 1050 + 50 + 25


def test_nothing_measured_is_null() -> None:
    _, totals = EnergyMeter(started=0.0).measure([sample()], 1.0)
    assert (totals["energy_joules"], totals["energy_source"]) == (None, None)
