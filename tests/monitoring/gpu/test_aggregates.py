"""Totals, balance and tracker names of GPU samples, against figures worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.gpu.aggregates import aggregate, balance, gpu_points, gpu_texts, quality
from monitoring.gpu.sample import GpuSample
from monitoring.journal.records import points


def sample(index: int, **values: Any) -> GpuSample:
    return GpuSample(index, f"GPU-{index}", "simulated", "nvidia", values.pop("state", "ok"), **values)


def test_totals_are_over_what_is_reported() -> None:
    samples = [
        sample(
            0,
            memory_used_mb=3000,
            memory_total_mb=10000,
            utilization_percent=90,
            power_draw_watts=300,
            temperature_celsius=61,
        ),
        sample(
            1,
            memory_used_mb=1000,
            memory_total_mb=10000,
            utilization_percent=70,
            power_draw_watts=100,
            temperature_celsius=72,
        ),
        sample(2, state="lost", error="GPU is lost"),
        sample(5, memory_total_mb=10000, utilization_percent=50),
    ]
    assert aggregate(samples) == {
        "gpu_count": 4,
        "lost": [2],
        "total_memory_used_mb": 4000,
        "total_memory_mb": 20000,
        "total_memory_percent": 20,
        "average_utilization": 70,
        "total_power_watts": 400,
        "max_temperature_celsius": 72,
        "load_balance": {
            # 1000 by 2000; sqrt((20² + 0 + 20²) / 3) by 70; 100 by 200
            "memory": {"cv": 50, "quality": "Poor"},
            "utilization": {"cv": pytest.approx(23.32847374), "quality": "Poor"},
            "power": {"cv": 50, "quality": "Poor"},
        },
    }


def test_totals_of_nothing_are_null() -> None:
    nothing = {"cv": None, "quality": None}
    assert aggregate([sample(0, state="lost")]) == {
        "gpu_count": 1,
        "lost": [0],
        "total_memory_used_mb": None,
        "total_memory_mb": None,
        "total_memory_percent": None,
        "average_utilization": None,
        "total_power_watts": None,
        "max_temperature_celsius": None,
        "load_balance": {"memory": nothing, "utilization": nothing, "power": nothing},
    }


@pytest.mark.parametrize(
    ("cv", "band"),
    [
        (0.0, "Excellent"),
        (4.999, "Excellent"),
        (5.0, "Good"),
        (9.999, "Good"),
        (10.0, "Fair"),
        (19.999, "Fair"),
        (20.0, "Poor"),
        (300.0, "Poor"),
    ],
)
def test_quality_bands_are_the_documented_ones(cv: float, band: str) -> None:
    assert quality(cv) == band


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0]])
def test_balance_of_nothing_shared_is_null(values: list[float]) -> None:
    assert balance(values) == {"cv": None, "quality": None}


def test_points_have_the_documented_names() -> None:
    samples = [
        sample(
            index,
            memory_used_mb=1000 * (index + 1),
            memory_total_mb=4000,
            utilization_percent=80,
            power_draw_watts=200,
            temperature_celsius=60 + index,
            run_share=1.0,
        )
        for index in range(2)
    ]
    other = sample(2, power_draw_watts=700)
    record = {
        "event": "gpu",
        "time": 1.0,
        "seq": 3,
        "attempt": 1,
        "global_step": 7,
        "multi_gpu_data": [sample._asdict() for sample in [*samples, other]],
        "aggregate_stats": {**aggregate(samples), "energy_joules": 12.5, "cost": None},
    }
    assert points(record) == {
        "gpu_total_memory_used": 3000,
        "gpu_total_memory_percent": 37.5,
        "gpu_average_utilization": 80,
        "gpu_total_power": 400,
        "gpu_max_temperature": 61,
        "gpu_energy_joules": 12.5,
        "gpu_load_balance_cv": pytest.approx(100 / 3),
        "gpu_load_balance_memory_cv": pytest.approx(100 / 3),
        "gpu_load_balance_utilization_cv": 0,
        "gpu_load_balance_power_cv": 0,
        "gpu_0_memory_used": 1000,
        "gpu_0_utilization": 80,
        "gpu_0_temperature": 60,
        "gpu_0_power": 200,
        "gpu_1_memory_used": 2000,
        "gpu_1_utilization": 80,
        "gpu_1_temperature": 61,
        "gpu_1_power": 200,
    }
    assert points(record) == gpu_points(record)
    assert gpu_texts(record) == {"gpu_load_balance_quality": "Poor"}
