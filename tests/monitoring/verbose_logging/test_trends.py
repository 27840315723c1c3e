"""Trends and times of steps, against numpy's regression and plain means."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitoring.verbose_logging.trends import Crossings, StepTimes, Trend


def trend_of(values: list[float]) -> Trend:
    trend = Trend()
    for second, value in enumerate(values):
        trend.add(float(second), value)
    return trend


def test_trend_is_the_regression_over_its_window() -> None:
    noise = np.random.default_rng(3).normal(0, 0.5, 100)
    values = [float(60 + 0.2 * second + noise[second]) for second in range(100)]
    slope = float(np.polyfit(np.arange(60), values[-60:], 1)[0])
    assert trend_of(values).shown(in_detail=True) == {
        "current": values[-1],
        "avg_last_5": pytest.approx(np.mean(values[-5:])),
        "trend_direction": "increasing",
        "slope_per_minute": pytest.approx(60 * slope),
        "num_values": 60,
    }


@pytest.mark.parametrize(
    ("values", "direction"),
    [
        ([50.0, 51.0], "stable"),
        ([50.0] * 20, "stable"),
        ([50.0 + second for second in range(5)], "increasing"),
        ([50.0 - 0.1 * second for second in range(30)], "decreasing"),
        ([50.0 + (-1) ** second for second in range(60)], "stable"),
        ([50.0 + 0.001 * second for second in range(60)], "stable"),
    ],
)
def test_direction_is_of_what_stands_out_of_the_noise(values: list[float], direction: str) -> None:
    shown = trend_of(values).shown(in_detail=False)
    assert shown is not None
    assert shown["trend_direction"] == direction
    assert shown.keys() == {"current", "avg_last_5", "trend_direction"}


def test_trend_leaves_out_what_is_no_number() -> None:
    assert trend_of([math.nan, math.inf]).shown(in_detail=False) is None
    trend = Trend()
    trend.add(1.0, None)
    trend.add(1.0, "70")
    assert trend.shown(in_detail=False) is None


def test_time_left_is_not_moved_by_an_evaluation() -> None:
    times, now = StepTimes(), 0.0
    for step in range(1, 41):
        now += 30.0 if step in (20, 40) else 2.0  # with an evaluation before it
        times.add(step, now, 1.5)
    assert times.pace() == 2.0
    assert times.seconds_left(40, 100) == 120.0
    assert times.seconds_left(40, None) is None
    assert times.average == 1.5


def test_pace_is_that_of_steps_where_only_some_have_a_record() -> None:
    times = StepTimes()
    for step in (5, 10, 15):
        times.add(step, 10.0 * step, 9.0)
    assert times.pace() == 10.0


def test_time_left_restarts_where_a_training_resumes() -> None:
    times = StepTimes()
    for step, end in [(1, 1.0), (2, 2.0), (3, 3.0), (2, 100.0), (3, 104.0)]:
        times.add(step, end, 1.0)
    assert times.pace() == 4.0


def test_slow_steps_are_an_anomaly_once_per_episode() -> None:
    times = StepTimes()
    seconds = [1.0] * 20 + [2.9, 3.5, 3.5, 2.0, 1.0, 3.5] + [1.0]
    found = [step for step, took in enumerate(seconds, 1) if times.add(step, float(step), took)]
    assert found == [22, 26]


def test_a_first_step_that_compiles_is_none() -> None:
    times = StepTimes()
    assert [times.add(step, float(step), took) for step, took in [(1, 60.0), (2, 1.0), (3, 9.0)]] == [
        False
    ] * 3


def usage(memory: float, *gpus: float) -> dict[str, object]:
    devices = [{"index": index, "memory_usage_percent": share} for index, share in enumerate(gpus)]
    return {"memory": {"usage_percent": memory}, "gpu": {"devices": devices}}


def test_a_limit_warns_once_per_crossing() -> None:
    crossings = Crossings()
    readings = [89.9, 90.0, 95.0, 89.0, 91.0, 84.9, 90.1]
    found = [[message for message, _ in crossings.new(usage(share))] for share in readings]
    warned = ["⚠️ High memory usage: 90.0%"], ["⚠️ High memory usage: 90.1%"]
    assert found == [[], warned[0], [], [], [], [], warned[1]]


def test_each_gpu_has_a_limit_of_its_own() -> None:
    crossings = Crossings()
    assert [list(crossings.new(usage(50.0, *gpus))) for gpus in [(96.0, 94.0), (96.0, 95.5)]] == [
        [
            (
                "⚠️ High GPU 0 memory usage: 96.0%",
                {"resource": "GPU 0 memory", "usage_percent": 96.0, "limit_percent": 95.0},
            )
        ],
        [
            (
                "⚠️ High GPU 1 memory usage: 95.5%",
                {"resource": "GPU 1 memory", "usage_percent": 95.5, "limit_percent": 95.0},
            )
        ],
    ]
    assert list(crossings.new({})) == []
