"""Energy, hours and cost over gaps, agents and attempts."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.agent.sample_threads.gpu_stats import RunSums
from monitoring.gpu.energy import EnergyMeter
from monitoring.gpu.run_devices import every_gpu
from monitoring.gpu.sample import GpuSample


class Meter:
    """Energy of GPUs and the sums of a run that has all of them, as gpu_stats.jsonl has them."""

    def __init__(self, *, hour_price: float = 0.0, interval: float = 1.0, started: float) -> None:
        self._energy = EnergyMeter(interval=interval, started=started)
        self._sums = RunSums(hour_price=hour_price)
        self.standing: list[int] = []

    def resume(self, record: dict[str, Any], *, same_attempt: bool) -> None:
        self._energy.resume(record, same_attempt=same_attempt)
        self._sums.resume(record["aggregate_stats"])

    def measure(self, samples: list[GpuSample], now: float) -> tuple[list[GpuSample], dict[str, Any]]:
        measured, used = self._energy.measure(samples, now)
        self.standing += [sample.index for sample in used.standing]
        return measured, self._sums.add(measured, used, every_gpu(measured))


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


def record(meter: Meter, samples: list[GpuSample], time: float) -> dict[str, Any]:
    """Record that gpu_stats.jsonl would hold."""
    measured, totals = meter.measure(samples, time)
    return {
        "time": time,
        "multi_gpu_data": [sample._asdict() for sample in measured],
        "aggregate_stats": totals,
    }


def test_counter_counts_from_the_first_sample_on() -> None:
    meter = Meter(started=0.0)
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
    meter = Meter(started=0.0)
    for time, power in ((0.0, 100), (1.0, 300), (3.0, 300)):
        measured, totals = meter.measure([sample(power=power)], time)
    assert (measured[0].energy_joules, measured[0].energy_source) == (200 + 600, "integrated")
    assert (totals["energy_joules"], totals["energy_source"]) == (800, "integrated")


def test_gap_is_measured_by_a_counter_and_not_by_power() -> None:
    meter = Meter(started=0.0, interval=1.0)
    meter.measure([sample(0, counter=0), sample(1, power=100)], 0.0)
    _, totals = meter.measure([sample(0, counter=50_000), sample(1, power=100)], 100.0)
    assert (totals["energy_joules"], totals["energy_source"]) == (50_000, "counter+integrated")
    assert (totals["unmeasured_seconds"], totals["gpu_hours"]) == (100, 200 / 3600)


def test_counter_that_begins_anew_adds_nothing_for_the_jump() -> None:
    meter = Meter(started=0.0)
    for time, counter in enumerate([5000, 5100, 20, 70]):
        _, totals = meter.measure([sample(counter=counter)], float(time))
    assert totals["energy_joules"] == 150


def test_counter_that_is_not_told_for_a_while_counts_once() -> None:
    """Its power is counted meanwhile, and is in what the counter then tells."""
    meter = Meter(started=0.0)
    totals = []
    for time, counter in enumerate([1000, None, None, 1350, 1450]):
        _, told = meter.measure([sample(counter=counter, power=100)], float(time))
        totals.append(told["energy_joules"])
    assert totals == [0, 100, 200, 350, 450]


def test_counter_that_tells_less_than_its_power_did_takes_nothing_back() -> None:
    meter = Meter(started=0.0)
    totals = []
    for time, counter in enumerate([1000, None, 1060, 1160]):
        _, told = meter.measure([sample(counter=counter, power=100)], float(time))
        totals.append(told["energy_joules"])
    assert totals == [0, 100, 100, 200]


def test_lost_gpu_keeps_what_it_had_used() -> None:
    meter = Meter(started=0.0)
    meter.measure([sample(0, power=100), sample(1, counter=0)], 0.0)
    meter.measure([sample(0, power=100), sample(1, counter=70)], 1.0)
    measured, totals = meter.measure([sample(0, state="lost"), sample(1, counter=140)], 2.0)
    assert ([it.energy_joules for it in measured], totals["energy_joules"]) == ([100, 140], 240)
    # of the time in which nobody could ask it nothing is known
    meter.measure([sample(0, power=100), sample(1, counter=210)], 3.0)
    _, totals = meter.measure([sample(0, power=100), sample(1, counter=280)], 4.0)
    assert totals["energy_joules"] == 200 + 280


def test_agent_that_takes_over_counts_what_went_on_without_it() -> None:
    first = Meter(started=0.0)
    record(first, [sample(counter=1000)], 1.0)
    last = record(first, [sample(counter=1500)], 2.0)
    second = Meter(started=0.0)
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
    first = Meter(started=0.0, hour_price=3.6)
    record(first, [sample(0, counter=0), sample(1, counter=0)], 0.0)
    last = record(first, [sample(0, counter=700), sample(1, counter=300)], 1.0)
    assert last["aggregate_stats"]["cost"] == pytest.approx(2 * 3.6 / 3600)

    second = Meter(started=1000.0, hour_price=3.6)  # on one of the GPUs, an hour of others' work later
    second.resume(last, same_attempt=False)
    second.measure([sample(0, counter=900_000)], 1000.0)
    measured, totals = second.measure([sample(0, counter=900_050)], 1001.0)
    assert measured[0].energy_joules == 750
    assert totals["energy_joules"] == 1050
    assert totals["gpu_hours"] == pytest.approx(3 / 3600)
    assert totals["cost"] == pytest.approx(3 * 3.6 / 3600)

    # a third one, of whose last record the other GPU is no part
    third = Meter(started=2000.0, hour_price=3.6)
    third.resume(record(second, [sample(0, counter=900_100)], 1002.0) | {"attempt": 2}, same_attempt=False)
    third.measure([sample(0, counter=0)], 2000.0)
    _, totals = third.measure([sample(0, counter=25)], 2001.0)
    assert totals["energy_joules"] == 1050 + 50 + 25


def test_nothing_measured_is_null() -> None:
    _, totals = Meter(started=0.0).measure([sample()], 1.0)
    assert (totals["energy_joules"], totals["energy_source"]) == (None, None)


def test_counter_that_stands_still_under_load_counts_as_power() -> None:
    """Ten seconds at 100 W while it stands; then it reports more than those, as one that was only late."""
    meter, totals = Meter(started=0.0), []
    for second in range(11):
        measured, told = meter.measure([sample(counter=1000, power=100)], float(second))
        totals.append((told["energy_joules"], measured[0].energy_source))
    assert totals == [
        *((0, "counter") for _ in range(5)),
        *((100 * second, "integrated") for second in range(5, 11)),
    ]
    assert meter.standing == [0]
    measured, told = meter.measure([sample(counter=2150, power=100)], 11.0)
    assert (told["energy_joules"], measured[0].energy_source) == (1150, "counter")


def test_counter_that_stands_still_without_power_is_believed() -> None:
    meter = Meter(started=0.0)
    for second in range(20):
        _, totals = meter.measure([sample(0, counter=7), sample(1, counter=7, power=0.0)], float(second))
    assert (totals["energy_joules"], totals["energy_source"], meter.standing) == (0, "counter", [])


def test_counter_that_is_missing_while_it_stands_still_is_found_once() -> None:
    meter = Meter(started=0.0)
    for second in range(20):
        counter = None if second % 4 == 3 else 1000
        _, totals = meter.measure([sample(counter=counter, power=100)], float(second))
    assert (totals["energy_joules"], meter.standing) == (1900, [0])
